package process

import "syscall"

// dieWithUs has the kernel kill the program when the test process ends, however
// it ends: a test that panics or runs out of time leaves nothing behind.
func dieWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

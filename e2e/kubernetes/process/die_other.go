//go:build !linux

package process

import "syscall"

// dieWithUs can promise nothing here: a test that panics leaves its programs
// running.
func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

package process

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePort returns a loopback port on which nobody listens. It lies below the
// ports that the system hands out by itself, so that no outgoing connection
// takes it before the program listens there.
func FreePort() (int, error) {
	const low, count, tries = 20000, 12000, 100
	var errs error
	for range tries {
		port := low + rand.IntN(count) //nolint:gosec // nothing secret about a port
		l, err := net.Listen("tcp", Loopback(port))
		if err != nil {
			errs = err
			continue
		}
		if err := l.Close(); err != nil {
			return 0, fmt.Errorf("looking for a free port: %w", err)
		}
		return port, nil
	}
	return 0, fmt.Errorf("looking for a free port: %w", errors.Join(errors.New("none found"), errs))
}

// Loopback returns the port's address.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

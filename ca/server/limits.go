package server

import (
	"cmp"
	"runtime"
	"time"
)

// Limits bound what requests may cost. A zero field means its default. Every
// bound is answered with a code that tells the client to try again, never with
// a denial.
type Limits struct {
	// Deadline is how long one request may take in all; clients set none.
	// Beyond it the answer is Unavailable. Default 10 s.
	Deadline time.Duration

	// InFlight is how many requests are worked on at once, and InFlightPerNode
	// how many of them for one node. Default 256 for each processor, and 32.
	InFlight, InFlightPerNode int

	// QueuePerNode is how many more requests of one node wait their turn, and
	// QueueWait for how long. Beyond either the answer is ResourceExhausted,
	// with the time to wait before trying again. Default 64 and 2 s.
	QueuePerNode int
	QueueWait    time.Duration

	// StreamsPerConnection is how many requests one connection may have open;
	// more wait at the client, as HTTP/2 has it. Default 100.
	StreamsPerConnection uint32

	// MessageSize is how large a request may be, in bytes, and HeaderSize its
	// metadata. Larger ones end with ResourceExhausted, and at the client.
	// Default 64 KiB and 32 KiB.
	MessageSize int
	HeaderSize  uint32

	// AuditRepeats is how many different refusals are remembered so that their
	// repeats can be counted. Beyond it the oldest is written with its count and
	// forgotten. AuditLinesPerCaller is how many of them are of one caller;
	// beyond it, its other identities count as one. Default 4096 and 64.
	AuditRepeats, AuditLinesPerCaller int

	// Connections is how many connections are open at once, and
	// ConnectionsPerHost how many of them from one address. One more is closed
	// at once; its client tries again. Default 16384 and 1024.
	Connections, ConnectionsPerHost int

	// ConnectionAge is how long a connection lives before the client is sent
	// elsewhere, plus or minus 10 %, and ConnectionGrace how long the requests
	// on it may take to finish. ConnectionIdle is how long one may be without
	// requests. Default 30 min, 30 s and 5 min.
	ConnectionAge, ConnectionGrace, ConnectionIdle time.Duration

	// DrainDelay is how long a server that was told to stop still accepts
	// requests, so that its endpoint can be withdrawn first, and DrainTimeout
	// how long what is in flight may then take. Default 3 s and 20 s.
	DrainDelay, DrainTimeout time.Duration
}

func (l Limits) withDefaults() Limits {
	l.Deadline = cmp.Or(l.Deadline, 10*time.Second)
	l.InFlight = cmp.Or(l.InFlight, 256*runtime.GOMAXPROCS(0))
	l.InFlightPerNode = cmp.Or(l.InFlightPerNode, 32)
	l.QueuePerNode = cmp.Or(l.QueuePerNode, 64)
	l.QueueWait = cmp.Or(l.QueueWait, 2*time.Second)
	l.StreamsPerConnection = cmp.Or(l.StreamsPerConnection, 100)
	l.MessageSize = cmp.Or(l.MessageSize, 64<<10)
	l.HeaderSize = cmp.Or(l.HeaderSize, 32<<10)
	l.AuditRepeats = cmp.Or(l.AuditRepeats, 4096)
	l.AuditLinesPerCaller = cmp.Or(l.AuditLinesPerCaller, 64)
	l.Connections = cmp.Or(l.Connections, 16384)
	l.ConnectionsPerHost = cmp.Or(l.ConnectionsPerHost, 1024)
	l.ConnectionAge = cmp.Or(l.ConnectionAge, 30*time.Minute)
	l.ConnectionGrace = cmp.Or(l.ConnectionGrace, 30*time.Second)
	l.ConnectionIdle = cmp.Or(l.ConnectionIdle, 5*time.Minute)
	l.DrainDelay = cmp.Or(l.DrainDelay, 3*time.Second)
	l.DrainTimeout = cmp.Or(l.DrainTimeout, 20*time.Second)
	return l
}

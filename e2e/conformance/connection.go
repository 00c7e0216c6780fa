package conformance

func connectionCases() []Case { return nil }

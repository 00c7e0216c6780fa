package conformance

func tokenCases() []Case { return nil }

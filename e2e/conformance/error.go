package conformance

func errorCases() []Case { return nil }

package conformance

func csrCases() []Case { return nil }

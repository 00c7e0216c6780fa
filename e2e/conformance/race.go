package conformance

func raceCases() []Case { return nil }

package conformance

func certificateCases() []Case { return nil }

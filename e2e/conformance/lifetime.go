package conformance

func lifetimeCases() []Case { return nil }

package conformance

import (
	"encoding/base64"
	"strings"
	"testing"
)

func TestEvidenceHasNoTokens(t *testing.T) {
	token := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256"}`)) + ".Y2xhaW1z_-." + "c2lnbmF0dXJl"
	run := &T{}
	run.note("refused: %s, request 1", token)
	run.errorf("%s is no token", token[:len(token)-9])
	_, evidence := run.outcome()
	if text := strings.Join(evidence, "\n"); text != "[token] is no token\nrefused: [token], request 1" {
		t.Errorf("the evidence is\n%s", text)
	}
}

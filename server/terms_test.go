package server

import (
	"errors"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

func TestAServerOfOtherTermsEndsAndSaysWhy(t *testing.T) {
	layout, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{8}}})
	if err != nil {
		t.Fatal(err)
	}
	for says, terms := range map[string]kintsugi.Terms{
		"server/1 has a model with fingerprint": {Protocol: kintsugi.ProtocolVersion, Model: layout.Fingerprint() + 1},
		"server/1 speaks protocol":              {Protocol: kintsugi.ProtocolVersion + 1, Model: layout.Fingerprint()},
	} {
		lis, err := transport.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		views := make(chan kintsugi.View, 1)
		views <- kintsugi.View{Number: 3, Servers: make([]kintsugi.Member, 2), Terms: terms}
		err = New(Config{ID: 1, Incarnation: 1, Layout: layout}).Run(t.Context(), lis, views)
		if !errors.Is(err, kintsugi.ErrOtherModel) || !strings.Contains(err.Error(), says) {
			t.Errorf("a view of %+v ends it with %v, want %q", terms, err, says)
		}
	}
}

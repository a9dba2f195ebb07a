package job

import (
	"errors"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

func TestAUserOfEtcdHasAPassword(t *testing.T) {
	for user, password := range map[string]string{"kintsugi": "", "": "secret"} {
		t.Setenv("KINTSUGI_ETCD_USER", user)
		t.Setenv("KINTSUGI_ETCD_PASSWORD", password)
		_, err := DialEtcd(t.Context(), []string{"127.0.0.1:1"}, "test")
		if !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), "set both or neither") || strings.Contains(err.Error(), "secret") {
			t.Errorf("user %q, password %q: %v", user, password, err)
		}
	}
}

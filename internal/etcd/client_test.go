package etcd

import (
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/kintsugi-ml/kintsugi/internal/mtls"
)

// Whatever keeps the client from etcd, the library only says "context deadline exceeded".
func TestDialingInVainSaysWhatIsInTheWay(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stranger := grpc.NewServer() // without the services of an etcd
	go stranger.Serve(other)
	defer stranger.Stop()
	for _, c := range []struct {
		endpoint string
		tls      *mtls.Credentials
		want     string
		not      string
	}{
		{free.Addr().String(), nil, "connection refused", "--tls"},
		{"no..name:2379", nil, "no such host", "--tls"},
		{"http://no..name:2379", nil, "no such host", "--tls"},
		{other.Addr().String(), nil, "is not an etcd: something else answers there", "refused"},
		{silent.Addr().String(), nil, "if it was started with --tls use --tls here too", "refused"},
		{silent.Addr().String(), certs(t)("worker"), "that it was started with --tls as well", "use --tls here"},
	} {
		_, err := Dial(t.Context(), []string{c.endpoint}, "test", WithTLS(c.tls), WithTimeout(500*time.Millisecond))
		if !strings.Contains(text(err), c.endpoint) || !strings.Contains(text(err), c.want) || strings.Contains(text(err), c.not) {
			t.Errorf("%s: %v; want %q and no %q", c.endpoint, err, c.want, c.not)
		}
	}
}

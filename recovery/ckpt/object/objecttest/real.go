package objecttest

import (
	"bytes"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// Real starts a real server, versitygw, which keeps its objects in a folder and ends with the test.
// program is its binary; if it is empty, the test is skipped. The result returns the name of a
// place in the server's bucket, in the form of --store.
func Real(t testing.TB, program string) (place func(prefix string) string) {
	t.Helper()
	if program == "" {
		t.Skip("KINTSUGI_S3 names no S3 server: run make s3")
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, Bucket), 0o755); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.Command(program, "--port", address, "--access", Key, "--secret", Secret, "--quiet", "posix", dir)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it was killed
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
		if t.Failed() {
			t.Logf("the store said\n%s", said.String())
		}
	})
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); ; <-tick.C {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close() // the connection was only a check
			break
		}
		select {
		case <-ended:
			t.Fatalf("%s has ended", program)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not listen on %s", program, address)
		}
	}
	return func(prefix string) string {
		return object.Scheme + Bucket + "/" + prefix + "?region=us-east-1&endpoint=" + url.QueryEscape("http://"+address)
	}
}

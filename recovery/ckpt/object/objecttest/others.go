package objecttest

import (
	"bytes"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// Others lists, by protocol, servers that others wrote: versitygw, and the emulators fake-gcs-server
// and azurite-blob. Each keeps its objects in a folder, and ends with the test. getenv returns
// variables of the environment, of which KINTSUGI_S3, KINTSUGI_GS and KINTSUGI_AZ name the programs;
// if one is not set, its test is skipped. The result of a function returns the name of a place in its
// server's bucket, in the form of --store.
func Others() map[string]func(t testing.TB, getenv func(string) string) (place func(prefix string) string) {
	all := map[string]func(testing.TB, func(string) string) func(string) string{}
	for protocol, start := range map[string]func(t testing.TB, program, dir, address string) (scheme, options string){"s3": versitygw, "gs": fakeGCS, "az": azurite} {
		all["other "+protocol] = func(t testing.TB, getenv func(string) string) func(string) string {
			t.Helper()
			variable := "KINTSUGI_" + strings.ToUpper(protocol)
			program := getenv(variable)
			if program == "" {
				t.Skip(variable + " names no server: run make stores")
			}
			scheme, options := start(t, program, t.TempDir(), free(t))
			return func(prefix string) string { return scheme + Bucket + "/" + prefix + "?" + options }
		}
	}
	return all
}

func versitygw(t testing.TB, program, dir, address string) (scheme, options string) {
	makeFolder(t, dir)
	serve(t, address, exec.Command(program, "--port", address, "--access", Key, "--secret", Secret, "--quiet", "posix", dir))
	return object.AmazonScheme, "region=us-east-1&endpoint=" + url.QueryEscape("http://"+address)
}

func fakeGCS(t testing.TB, program, dir, address string) (scheme, options string) {
	makeFolder(t, dir)
	host, port, _ := strings.Cut(address, ":")
	serve(t, address, exec.Command(program, "-scheme", "http", "-host", host, "-port", port, "-filesystem-root", dir))
	return object.GoogleScheme, "endpoint=" + url.QueryEscape("http://"+address)
}

func azurite(t testing.TB, program, dir, address string) (scheme, options string) {
	host, port, _ := strings.Cut(address, ":")
	cmd := exec.Command(program, "--blobHost", host, "--blobPort", port, "--location", dir, "--silent", "--disableTelemetry", "--skipApiVersionCheck")
	cmd.Env = append(cmd.Environ(), "AZURITE_ACCOUNTS="+Account+":"+AccountKey)
	serve(t, address, cmd)
	endpoint := "http://" + address + "/" + Account
	makeContainer(t, endpoint+"/"+Bucket)
	return object.AzureScheme, "account=" + Account + "&endpoint=" + url.QueryEscape(endpoint)
}

// makeFolder makes the folder that is the bucket.
func makeFolder(t testing.TB, dir string) {
	if err := os.Mkdir(filepath.Join(dir, Bucket), 0o755); err != nil {
		t.Fatal(err)
	}
}

// free returns an address that nobody listens on.
func free(t testing.TB) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// serve starts a server, waits until it answers, and kills it when the test ends.
func serve(t testing.TB, address string, cmd *exec.Cmd) {
	t.Helper()
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", cmd.Path, err)
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
		if r, err := http.Get("http://" + address); err == nil {
			_ = r.Body.Close() // whatever it says, it answers
			return
		}
		select {
		case <-ended:
			t.Fatalf("%s has ended", cmd.Path)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not listen on %s", cmd.Path, address)
		}
	}
}

// makeContainer makes the container, which is not a folder.
func makeContainer(t testing.TB, at string) {
	t.Helper()
	key, err := container.NewSharedKeyCredential(Account, AccountKey)
	if err != nil {
		t.Fatal(err)
	}
	client, err := container.NewClientWithSharedKeyCredential(at, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

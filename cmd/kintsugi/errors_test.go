package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

var update = flag.Bool("update", false, "write the golden files of testdata/errors")

// A mistake is a command that must fail, with the name of the golden file that holds its output.
type mistake struct {
	name   string
	status int
	args   string // split at spaces; "_" stands for a space within an argument
}

var mistakes = []mistake{
	{"command-unknown", exitUsage, "trian"},
	{"command-unknown-sub", exitUsage, "checkpoint frobnicate run"},
	{"flag-unknown", exitUsage, "train --frobnicate"},
	{"flag-near", exitUsage, "train --lr 0.1"},
	{"flag-malformed", exitUsage, "train --steps many"},
	{"flag-too-large", exitUsage, "train --steps 99999999999999999999"},
	{"flag-unit", exitUsage, "train --warning 5"},
	{"argument-unexpected", exitUsage, "train run"},
	{"argument-missing", exitUsage, "rerun"},
	{"model-unknown", exitUsage, "train --model vgg"},
	{"model-option", exitUsage, "train --model qp:size=3"},
	{"model-too-large-for-images", exitUsage, "train --model lenet --data idx --data-dir small"},
	{"input-classes", exitUsage, "train --input 1x28x28x3"},
	{"input-size", exitUsage, "train --model charlm --input 32x65"},
	{"consistency-unknown", exitUsage, "train --model qp --consistency eventual"},
	{"status-listens", exitUsage, "status --listen-for 0s"},
	{"tune-range", exitUsage, "tune lr --low 1 --high 0.1"},
	{"simulate-times", exitUsage, "simulate --times normal:1"},
	{"simulate-steps", exitUsage, "simulate --steps 0"},
	{"simulate-target", exitUsage, "simulate --target NaN"},
	{"simulate-diverges", exitFailed, "simulate --learning-rate 1e9 --steps 50"},
	{"simulate-mtbf", exitUsage, "simulate --mtbf 1ms"},
	{"simulate-lose-alone", exitUsage, "simulate --lose 0.3"},
	{"simulate-lose-no-part", exitUsage, "simulate --consistency async --outage 10s --lose NaN"},
	{"simulate-outage-negative", exitUsage, "simulate --consistency async --outage -1s"},
	{"simulate-outage-checked", exitUsage, "simulate --consistency async --outage 10s --lose 0.5 --apply -1s"},
	{"simulate-outage-mean", exitUsage, "simulate --consistency async --outage 2000000h --mean 2000000h"},
	{"simulate-too-long", exitUsage, "simulate --mean 2000000h"},
	{"simulate-price", exitUsage, "simulate --price worker=1e308"},
	{"simulate-trace", exitUsage, "simulate --trace list.yaml"},
	{"batch-too-large", exitUsage, "tune lr --batch 99999999999"},
	{"threads-too-many", exitUsage, "tune lr --blas-threads 4294967296"},
	{"tune-seeds", exitUsage, "tune lr --seeds 4294967296"},
	{"simulate-slow", exitUsage, "simulate --slow x5"},
	{"codec-unknown", exitUsage, "train --model qp --codec zip"},
	{"codec-density", exitUsage, "train --model qp --codec topk:2"},
	{"optimizer-unknown", exitUsage, "train --model qp --optimizer rmsprop"},
	{"decay-unknown", exitUsage, "train --model qp --decay sawtooth"},
	{"recovery-unknown", exitUsage, "train --model qp --recovery prayer"},
	{"recovery-scar-fraction", exitUsage, "train --model qp --recovery scar:3/2"},
	{"recovery-scar-period", exitUsage, "train --model qp --recovery scar:1/4,0"},
	{"replicas-too-many", exitUsage, "train --model qp --replicas 3"},
	{"recovery-chain-alone", exitUsage, "train --model qp --recovery chain --replicas 1"},
	{"recovery-chain-one-server", exitUsage, "train --model qp --recovery chain --servers 1"},
	{"recovery-chain-option", exitUsage, "train --model qp --recovery chain:often"},
	{"recovery-scar-replicas", exitUsage, "train --model qp --recovery scar --replicas 2"},
	{"recovery-scar-no-checkpoint", exitUsage, "train --model qp --recovery scar --checkpoint-every 0"},
	{"recovery-stateless-option", exitUsage, "train --model qp --recovery stateless:often"},
	{"outage-unknown", exitUsage, "train --model qp --outage panic"},
	{"outage-fresh-alone", exitUsage, "train --model qp --consistency bsp --outage continue"},
	{"kept-unknown", exitUsage, "train --model qp --kept forever"},
	{"engine-unknown", exitUsage, "train --engine jax"},
	{"blas-unknown", exitUsage, "train --model qp --blas cublas"},
	{"device-unknown", exitUsage, "train --model qp --device tpu"},
	{"log-level-unknown", exitUsage, "train --model qp --log-level loud"},
	{"input-malformed", exitUsage, "train --model mlr --input 28x28x10"},
	{"input-of-text", exitUsage, "train --model mlr --input 64x65"},
	{"model-of-images-on-text", exitUsage, "train --model lenet --data text"},
	{"model-of-text-on-images", exitUsage, "train --model charlm --data digits"},
	{"model-of-ratings-on-images", exitUsage, "train --model mf --data digits"},
	{"model-of-images-on-documents", exitUsage, "train --model mlr --data topics"},
	{"model-decay-too-small", exitUsage, "train --model mf:als,decay=1e-14 --data ratings"},
	{"rule-of-another-model", exitUsage, "train --model qp --optimizer add"},
	{"rule-of-own-steps", exitUsage, "train --model lda --optimizer adam"},
	{"codec-not-exact", exitUsage, "train --model lda --codec int8"},
	{"codec-of-rows", exitUsage, "train --model mf:als --codec fp32"},
	{"consistency-of-owners", exitUsage, "train --model lda --consistency rennala:4"},
	{"codecs-of-ratings", exitUsage, "reproduce codecs --models mf --data ratings"},
	{"bench-count", exitUsage, "bench kernels --pairs 4294967296"},
	{"bench-models-none", exitUsage, "bench accuracy --models="},
	{"reproduce-strategies-none", exitUsage, "reproduce scar --strategies="},
	{"reproduce-trials", exitUsage, "reproduce scar --trials 4294967296"},
	{"bench-anytime-cost", exitUsage, "bench anytime --costs NaN"},
	{"bench-anytime-batch", exitUsage, "bench anytime --batches 16,0"},
	{"bench-of-own-steps", exitUsage, "bench train --models mf:als"},
	{"scar-of-documents", exitUsage, "reproduce scar --workloads mlr --data topics"},
	{"scar-of-vectors", exitUsage, "reproduce scar --workloads cnn --data cover"},
	{"data-not-published", exitUsage, "data fetch jester"},
	{"workers-none", exitUsage, "train --model qp --workers 0"},
	{"servers-too-many", exitUsage, "train --model qp --servers 5000"},
	{"momentum-too-large", exitUsage, "train --model qp --momentum 1.5"},
	{"momentum-no-number", exitUsage, "train --model qp --momentum NaN"},
	{"rate-no-number", exitUsage, "train --model qp --learning-rate NaN"},
	{"rate-endless", exitUsage, "train --model qp --learning-rate Inf"},
	{"rate-nothing", exitUsage, "train --model qp --learning-rate 0"},
	{"rate-of-no-tensor", exitUsage, "train --model mlr --input 1x28x28x10 --rate head.*=10"},
	{"rate-by-no-number", exitUsage, "train --model mlr --input 1x28x28x10 --rate fc1/w=-1"},
	{"rate-without-factor", exitUsage, "train --model mlr --input 1x28x28x10 --rate fc1/w"},
	{"rate-too-late", exitUsage, "train --model mlr --input 1x28x28x10 --rate *=0.5 --rate fc1/w=2"},
	{"rate-of-no-gradient", exitUsage, "train --model lda --rate *=2"},
	{"until-unknown", exitUsage, "train --model mlr --input 1x28x28x10 --until good"},
	{"until-percent", exitUsage, "train --model mlr --input 1x28x28x10 --until accuracy=98"},
	{"until-no-evaluation", exitUsage, "train --model qp --until loss=0.1"},
	{"until-no-accuracy", exitUsage, "train --model mf --until accuracy=0.9"},
	{"patience-negative", exitUsage, "train --model mlr --patience -1"},
	{"patience-of-monitor", exitConfig, "monitor --model mlr --input 1x28x28x10 --patience 3"},
	{"stop-within", exitUsage, "stop --within 0s"},
	{"stop-reason", exitUsage, "stop --reason="},
	{"steps-none", exitUsage, "train --model qp --steps 0"},
	{"weight-decay-no-number", exitUsage, "train --model qp --weight-decay NaN"},
	{"weight-decay-of-what", exitUsage, "train --model qp --weight-decay-for biases"},
	{"clip-norm-negative", exitUsage, "train --model qp --clip-norm -0.5"},
	{"clip-of-no-gradient", exitUsage, "train --model lda --clip-norm 1"},
	{"local-steps-none", exitUsage, "train --model qp --local-steps 0"},
	{"local-steps-of-own", exitUsage, "train --model lda --local-steps 4"},
	{"outer-alone", exitUsage, "train --model qp --outer nesterov"},
	{"outer-unknown", exitUsage, "train --model qp --local-steps 4 --outer adam"},
	{"outer-momentum", exitUsage, "train --model qp --local-steps 4 --outer sgd:1,0.9"},
	{"kept-local-of-adam", exitUsage, "train --model qp --optimizer adam --consistency async --kept local"},
	{"warmup-negative", exitUsage, "train --model qp --warmup -5"},
	{"store-in-a-file", exitUsage, "train --model qp --out run-a --store file/below"},
	{"store-scheme", exitUsage, "train --model qp --store ftp://bucket/runs"},
	{"store-google-as-s3", exitUsage, "train --model qp --store s3://bucket/runs?endpoint=https://storage.googleapis.com"},
	{"store-no-account", exitUsage, "train --model qp --store az://bucket/runs"},
	{"store-option", exitUsage, "train --model qp --store gs://bucket/runs?region=eu-1"},
	{"hang-after", exitUsage, "train --model qp --hang-after soon"},
	{"etcd-wait-none", exitConfig, "worker --index 0 --model qp --etcd-wait 0s"},
	{"listen-everywhere", exitConfig, "server --index 0 --model qp --listen 0.0.0.0:7070"},
	{"advertise-everywhere", exitConfig, "server --index 0 --model qp --listen :7070 --advertise 0.0.0.0:7070"},
	{"listen-no-port", exitConfig, "server --index 0 --model qp --listen 10.0.0.2"},
	{"listen-port", exitConfig, "server --index 0 --model qp --listen 10.0.0.2:99999"},
	{"config-missing", exitUsage, "train --config nowhere.yaml"},
	{"config-key", exitUsage, "train --config key.yaml"},
	{"config-value", exitUsage, "train --config value.yaml"},
	{"config-twice", exitUsage, "train --config twice.yaml"},
	{"config-broken", exitUsage, "train --config broken.yaml"},
	{"config-list", exitUsage, "train --config list.yaml"},
	{"epsilon-tiny", exitUsage, "train --model qp --optimizer adam --epsilon 1e-50"},
	{"config-map", exitUsage, "train --config map.yaml"},
	{"config-two-values", exitUsage, "train --config two.yaml"},
	{"environment-value", exitUsage, "KINTSUGI_STEPS=many kintsugi train --model qp"},
	{"data-unknown", exitUsage, "train --data imagenet"},
	{"data-dir-unset", exitUsage, "train --data mnist"},
	{"data-dir-missing", exitUsage, "train --data mnist --data-dir nowhere"},
	{"data-dir-empty", exitUsage, "train --data idx --data-dir empty"},
	{"data-dir-is-file", exitUsage, "train --data idx --data-dir file"},
	{"data-truncated", exitFailed, "train --data idx --data-dir truncated"},
	{"data-magic", exitFailed, "train --data idx --data-dir magic"},
	{"data-counts", exitFailed, "train --data idx --data-dir counts"},
	{"data-gzip", exitFailed, "train --data idx --data-dir gzip"},
	{"data-web-page", exitFailed, "train --data idx --data-dir page"},
	{"data-verify", exitFailed, "data verify mnist --data-dir empty"},
	{"data-fetch-url", exitUsage, "data fetch mnist --base-url ftp://mirror"},
	{"certs-days", exitUsage, "certs --days 213504 --out authority"},
	{"data-fetch-unknown", exitUsage, "data fetch imagenet"},
	{"out-in-use", exitUsage, "train --model qp --out run"},
	{"out-in-use-program", exitUsage, "train --out run -- false"}, // which is not asked first
	{"out-below-file", exitFailed, "train --model qp --out file/run"},
	{"fault-part", exitUsage, "train --model qp --fault kill_server/7_at_step_5"},
	{"fault-malformed", exitUsage, "train --model qp --fault kill_server/0_step_5"},
	{"resume-no-run", exitUsage, "train --resume empty"},
	{"resume-nowhere", exitUsage, "train --resume nowhere"},
	{"resume-other-model", exitUsage, "train --resume run --model qp:dimension=7"},
	{"resume-other-optimizer", exitUsage, "train --resume run --optimizer adam"},
	{"resume-fewer-steps", exitUsage, "train --resume run --steps 10"},
	{"resume-flipped-byte", exitFailed, "train --resume flipped"},
	{"resume-missing-chunks", exitFailed, "train --resume lost"},
	{"resume-newer-format", exitFailed, "train --resume newer"},
	{"checkpoint-list-newer-format", exitFailed, "checkpoint list newer"},
	{"resume-elsewhere", exitUsage, "train --resume run --out other"},
	{"rerun-no-run", exitUsage, "rerun empty"},
	{"report-no-run", exitUsage, "report empty"},
	{"report-nothing", exitUsage, "report"},
	{"report-many", exitUsage, "report 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17"},
	{"checkpoint-list-nothing", exitUsage, "checkpoint list empty"},
	{"checkpoint-verify-nothing", exitUsage, "checkpoint verify empty"},
	{"checkpoint-list-none-yet", exitFailed, "checkpoint list begun"},
	{"checkpoint-export-step", exitUsage, "checkpoint export run --step -7 --out x.npz"},
	{"checkpoint-export-average", exitUsage, "checkpoint export run --average 0 --out x.npz"},
	{"checkpoint-evaluate-nothing", exitUsage, "checkpoint evaluate run"},
	{"checkpoint-evaluate-other", exitUsage, "checkpoint evaluate run --config key.yaml"},
	{"checkpoint-export-none-yet", exitFailed, "checkpoint export begun --step 7 --out x.npz"},
	{"memory-listen-nothing", exitConfig, "memory --listen="},
	{"memory-listen-no-port", exitConfig, "memory --listen 10.0.0.2"},
	{"tls-nothing", exitUsage, "train --model qp --tls empty"},
	{"tls-key-missing", exitUsage, "train --model qp --tls keyless"},
	{"tls-other-role", exitConfig, "server --index 0 --model qp --tls certs/worker"},
	{"certs-nowhere", exitUsage, "certs"},
	{"certs-place", exitUsage, "certs --out made admin"},
	{"certs-host", exitUsage, "certs --out made --hosts node-a:7070"},
	{"server-index", exitConfig, "server --model qp --index 2"},
	{"worker-index", exitConfig, "worker --model qp --index -1"},
	{"worker-no-index", exitConfig, "worker --model qp"},
	{"worker-any-index", exitConfig, "worker --model qp --index any"},
	{"worker-auto-control", exitConfig, "worker --model qp --index auto --control ."},
	{"tls-one-place", exitConfig, "worker --index auto --model qp --tls one/worker/3"},
	{"worker-etcd", exitConfig, "worker --model qp --index 0 --etcd 10.0.0.1"},
	{"bench-store-folder", exitUsage, "bench checkpoint --store checkpoints"},
	{"bench-store-check", exitUsage, "bench checkpoint --store s3://bucket/prefix --check"},
	{"bench-format", exitUsage, "bench train --format xml"},
	{"bench-goals-gpu", exitUsage, "bench kernels --device cuda --goals"},
	{"bench-local-seeds", exitUsage, "bench local --seeds 0"},
	{"bench-local-steps", exitUsage, "bench local --models mlr --local-steps 0"},
	{"bench-accuracy-format", exitUsage, "bench accuracy --format xml"},
}

func TestEveryMistakeIsNamedAndNothingIsLost(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := mistakesDir(t)
	before := tree(t, dir)
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			args := strings.Fields(m.args)
			for i, a := range args {
				if !strings.HasPrefix(a, "KINTSUGI_") {
					args[i] = strings.ReplaceAll(a, "_", " ")
				}
			}
			r := startIn(t, dir, slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "kintsugi" })...).wait()
			if r.status != m.status || r.stdout != "" {
				t.Errorf("exit status %d, output %q; want %d and nothing", r.status, r.stdout, m.status)
			}
			line := strings.Join(args, " ")
			if !strings.HasPrefix(line, "KINTSUGI_") {
				line = "kintsugi " + line
			}
			golden(t, m.name, fmt.Sprintf("$ %s\nexit status %d\n%s", line, r.status, strings.ReplaceAll(r.stderr, dir, "DIR")))
		})
	}
	if after := tree(t, dir); !maps.Equal(after, before) {
		for path := range after {
			if after[path] != before[path] {
				t.Errorf("%s has been written", path)
			}
		}
		for path := range before {
			if _, there := after[path]; !there {
				t.Errorf("%s is gone", path)
			}
		}
	}
}

// golden compares a text with its golden file, or writes that file with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "errors", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		writeFile(t, file, []byte(got))
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; to write it: go test ./cmd/kintsugi -run %s -update", err, t.Name())
	}
	if got != string(want) {
		t.Errorf("it says\n%s\nwant\n%s", got, want)
	}
}

// reseal replaces the checksum in the last line of a changed manifest by that of the present
// content.
func reseal(manifest []byte) []byte {
	body := manifest[:bytes.LastIndexByte(manifest[:len(manifest)-1], '\n')+1]
	word := manifest[len(body) : len(manifest)-len("00000000\n")]
	return fmt.Appendf(slices.Clone(body), "%s%08x\n", word, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
}

// mistakesDir makes the folder in which the mistakes are run.
func mistakesDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	path := func(name ...string) string { return filepath.Join(append([]string{dir}, name...)...) }
	must(t, quadratic(20, "--model", "qp:dimension=50", "--out", path("run"))...)
	for _, d := range []string{"empty", "begun/checkpoints/manifest"} {
		if err := os.MkdirAll(path(d), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	must(t, "certs", "--out", path("certs"))
	must(t, "certs", "--out", path("one"), "worker/3")
	must(t, "certs", "--out", path("keyless"))
	if err := os.Remove(path("keyless/operator/key.pem")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"file":        "a file",
		"key.yaml":    "model: qp\nstesp: 5\n",
		"twice.yaml":  "model: qp\nsteps: 5\nmodel: mlr\n",
		"value.yaml":  "model: qp\n\nsteps: many\n",
		"broken.yaml": "model: [qp\n",
		"list.yaml":   "- model\n- qp\n",
		"two.yaml":    "steps: 30\nmodel: [mlr, mlp]\n",
		"map.yaml":    "model: qp\nrate:\n  head.*: 10\n",
	} {
		writeFile(t, path(name), []byte(text))
	}
	for name, change := range map[string]func(file string, content []byte) []byte{
		"flipped": func(file string, content []byte) []byte {
			if strings.Contains(file, "/segment/") {
				content[len(content)/2] ^= 1
			}
			return content
		},
		"lost": func(file string, content []byte) []byte {
			if strings.Contains(file, "/segment/") {
				return nil
			}
			return content
		},
		"newer": func(file string, content []byte) []byte {
			if strings.Contains(file, "/manifest/") {
				return reseal(bytes.Replace(content, []byte(`"version": 1`), []byte(`"version": 2`), 1))
			}
			return content
		},
	} {
		for file, content := range tree(t, path("run")) {
			rel, err := filepath.Rel(path("run"), file)
			if err != nil {
				t.Fatal(err)
			}
			if text := change(file, []byte(content)); text != nil {
				if err := os.MkdirAll(filepath.Dir(path(name, rel)), 0o777); err != nil {
					t.Fatal(err)
				}
				writeFile(t, path(name, rel), text)
			}
		}
	}
	set := tree(t, writeImages(t, 30, 4))
	for name, change := range map[string]func(map[string][]byte){
		"small":     func(map[string][]byte) {},
		"truncated": func(f map[string][]byte) { f[trainImages] = f[trainImages][:100] },
		"magic":     func(f map[string][]byte) { f[trainImages][3] = 7 },
		"counts":    func(f map[string][]byte) { f[trainLabels] = append(idxHeader(0x801, 29), make([]byte, 29)...) },
		"gzip":      func(f map[string][]byte) { f[trainImages] = append([]byte{0x1f, 0x8b}, f[trainImages]...) },
		"page":      func(f map[string][]byte) { f[testImages] = []byte("<html>moved</html>") },
	} {
		files := map[string][]byte{}
		for file, content := range set {
			files[filepath.Base(file)] = []byte(content)
		}
		change(files)
		if err := os.Mkdir(path(name), 0o777); err != nil {
			t.Fatal(err)
		}
		for file, content := range files {
			writeFile(t, path(name, file), content)
		}
	}
	return dir
}

// deadAddress returns an address at which nothing listens and that nobody else gets until the test
// ends: a socket is bound to it. A port that is merely free may be given to a server of another test.
func deadAddress(t *testing.T) string {
	t.Helper()
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(s) })
	if err := syscall.Bind(s, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(s)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

func TestAnEtcdThatDoesNotAnswerEndsEveryRoleInTime(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	address := deadAddress(t)
	dir := newDir(t)
	var running []*childProcess
	for _, args := range [][]string{{"server", "--index", "0"}, {"worker", "--index", "0"}, {"coordinator"}, {"train", "--out", dir}} {
		running = append(running, start(t, append(args, "--model", "qp", "--etcd", address)...))
	}
	for _, p := range running {
		r := p.wait()
		if r.status != exitFailed || !strings.Contains(r.stderr, "etcd at "+address+" did not answer within 5s: check that it runs") {
			t.Errorf("%q ended with status %d: %s", p.cmd.Args[1], r.status, r.stderr)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a run that could not begin has a folder: %v", err)
	}
}

func TestStrangersDoNotDisturbARun(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	dir := newDir(t)
	p := start(t, quadratic(1000000, "--checkpoint-every", "20", "--out", dir)...) // the run lasts until both strangers have contacted it, however long that takes
	p.reaches(dir, 20)
	endpoint := etcdOf(t, dir)
	config := []string{"--config", filepath.Join(dir, "processes.yaml"), "--etcd", endpoint, "--run", "local"}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	address := lis.Addr().String()
	taken := start(t, append([]string{"server", "--index", "0", "--listen", address, "--store", filepath.Join(dir, record.Checkpoints)}, config...)...)
	stranger := start(t, append([]string{"worker", "--index", "1", "--model", "qp:dimension=7"}, config...)...)
	if r := kin(t, "checkpoint", "repair", filepath.Join(dir, record.Checkpoints)); r.status != exitFailed || !strings.Contains(r.stderr, "its run is running") || r.stdout != "" {
		t.Errorf("the repair of a run that is running ended with status %d:\n%s%s", r.status, r.stdout, r.stderr)
	}
	if r := taken.wait(); r.status != exitFailed || !strings.Contains(r.stderr, address) || !strings.Contains(r.stderr, "address already in use") {
		t.Errorf("the server whose port is in use ended with status %d:\n%s", r.status, r.stderr)
	}
	if r := stranger.wait(); r.status != exitConfig || !strings.Contains(r.stderr, "another model") {
		t.Errorf("the worker of another model ended with status %d:\n%s", r.status, r.stderr)
	}
	p.reaches(dir, readRun(t, dir).Summary.Steps+20)
	p.signal(syscall.SIGINT)
	if r := p.wait(); r.status != exitInterrupted {
		t.Fatalf("the run ended with status %d:\n%s", r.status, r.stderr)
	}
	if failures := readRun(t, dir).Summary.Failures; len(failures) != 0 {
		t.Errorf("failures %+v; want none", failures)
	}
	noOrphans(t, dir)
}

var etcdFlag = regexp.MustCompile(`--etcd (\S+)`)

// etcdOf returns the address of the etcd of a running train, which it finds in the arguments of the
// run's processes.
func etcdOf(t *testing.T, dir string) string {
	t.Helper()
	for _, args := range leftOf(t, dir) {
		if m := etcdFlag.FindStringSubmatch(args); m != nil {
			return m[1]
		}
	}
	t.Fatal("no process of the run names an etcd")
	return ""
}

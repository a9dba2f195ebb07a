package check

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

var update = flag.Bool("update", false, "write what is rendered to testdata")

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(filepath.Join("..", "chart"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render returns the objects of a release with the name run, in the order of their files.
func render(t *testing.T, c *chart.Chart, values string) (string, error) {
	t.Helper()
	given, err := loader.LoadValues(strings.NewReader(values))
	if err != nil {
		t.Fatal(err)
	}
	v, err := util.ToRenderValues(c, given, common.ReleaseOptions{Name: "run", Namespace: "default", Revision: 1, IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, v)
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(files[name]) != "" {
			all.WriteString("---\n" + strings.TrimSpace(files[name]) + "\n")
		}
	}
	return all.String(), nil
}

// objects decodes rendered objects as an API server of the newest version does that refuses unknown
// fields.
func objects(t *testing.T, rendered string) []runtime.Object {
	t.Helper()
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	r := yaml.NewDocumentDecoder(io.NopCloser(strings.NewReader(rendered)))
	var all []runtime.Object
	for {
		b := make([]byte, len(rendered))
		n, err := r.Read(b)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(bytes.TrimSpace(b[:n])) == 0 {
			continue
		}
		o, kind, err := strict.Decode(b[:n], nil, nil)
		if err != nil {
			t.Errorf("%v: %v\n%s", kind, err, b[:n])
			continue
		}
		all = append(all, o)
	}
}

func TestTheChartRendersWhatIsWrittenDown(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.values"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no values in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".values"), func(t *testing.T) {
			values, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := render(t, load(t), string(values))
			if err != nil {
				t.Fatal(err)
			}
			if len(objects(t, got)) < 6 {
				t.Error("hardly anything is rendered")
			}
			golden := strings.TrimSuffix(file, ".values") + ".yaml"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s is another; write it anew with go test ./... -update, and read the difference", golden)
			}
		})
	}
}

// A value that does not exist, or has the wrong type, is refused.
func TestWrongValuesAreRefused(t *testing.T) {
	for values, word := range map[string]string{
		"run: {workers: none}":                  "workers",
		"run: {servers: 0}":                     "servers",
		"servres: {}":                           "servres",
		"workers: {replicas: 3}":                "replicas",
		"workers: {spares: -1}":                 "spares",
		"servers: {spares: 1}":                  "spares",
		"workers: {pod: {resource: {}}}":        "resource",
		"etcd: {replicas: 2}":                   "replicas",
		"store: 7":                              "store",
		"image: {tag: 3}":                       "tag",
		"image: {pullPolicy: Sometimes}":        "pullPolicy",
		"monitor: {args: --price=local}":        "args",
		"coordinator: {pod: {tolerations: {}}}": "tolerations",
		"run: [model, lenet]":                   "run",
		"etcd: {endpoints: etcd.example.org}":   "endpoints",
	} {
		if _, err := render(t, load(t), values); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, want an error that names %s", values, err, word)
		}
	}
}

// A field with a wrong name is found. Otherwise the test above would show nothing.
func TestAFieldThatThereIsNotIsFound(t *testing.T) {
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, o := range []string{
		"apiVersion: batch/v1\nkind: Job\nspec: {podFailurePolicy: {rules: [{act: Ignore}]}}\n",
		"apiVersion: batch/v1\nkind: Job\nspec: {template: {spec: {containers: [{name: a, image: b, volumeMounts: [{name: c, path: d}]}]}}}\n",
	} {
		if _, _, err := strict.Decode([]byte(o), nil, nil); err == nil || !strings.Contains(err.Error(), "unknown field") {
			t.Errorf("%q is taken: %v", o, err)
		}
	}
}

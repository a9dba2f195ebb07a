package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
)

// applied has the fields of a Kubernetes object that the test below needs.
type applied struct {
	Kind string
	Data map[string]string
	Spec struct {
		Template struct {
			Spec struct {
				Containers []struct {
					Args []string
				}
			}
		}
	}
}

// The chart starts roles that this program has, with flags that they have, and with settings that a
// run can have.
func TestTheChartStartsTheRolesThatThereAre(t *testing.T) {
	files, err := filepath.Glob("../../deploy/kubernetes/check/testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("the chart renders nothing: %v", err)
	}
	set := strings.NewReplacer("$(POD_IP)", "10.0.0.7", "$(JOB_COMPLETION_INDEX)", "0", "$(POD_NAME)", "run-etcd-0")
	roles := make(map[string]bool)
	for _, file := range files {
		settings := 0
		for _, o := range objectsOf(t, file) {
			if content, ok := o.Data["run.yaml"]; ok {
				settings++
				if err := settingsOfARun(t, content); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
			for _, c := range o.Spec.Template.Spec.Containers {
				args := make([]string, len(c.Args))
				for i, a := range c.Args {
					args[i] = set.Replace(a)
				}
				found, rest, err := newRoot(io.Discard, io.Discard).Find(args)
				if err == nil {
					err = found.ParseFlags(rest)
				}
				if err == nil {
					err = found.ValidateArgs(found.Flags().Args())
				}
				if err != nil || strings.Contains(strings.Join(args, " "), "$(") {
					t.Errorf("%s: %q: %v", file, args, err)
				}
				roles[args[0]] = true
			}
		}
		if settings != 1 {
			t.Errorf("%s has %d files of settings", file, settings)
		}
	}
	for _, role := range []string{"etcd", "coordinator", "server", "worker", "monitor", "memory"} {
		if !roles[role] {
			t.Errorf("nothing starts a %s", role)
		}
	}
}

func objectsOf(t *testing.T, file string) (list []applied) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for d := yaml.NewDecoder(bytes.NewReader(b)); ; {
		var o applied
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		list = append(list, o)
	}
}

// settingsOfARun returns what is wrong with a file of settings, as if this machine had the devices
// that the file asks for.
func settingsOfARun(t *testing.T, content string) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(file, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	r := &train.Training{}
	f := job.NewFlagSet("train")
	r.Register(f)
	if err := job.Load(f, file); err != nil {
		return err
	}
	r.Device, r.ServerDevice = "auto", "cpu"
	_, err := r.Checked()
	return err
}

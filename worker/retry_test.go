package worker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// If a worker's way to a server is blocked, whoever started the worker must be told, since nobody
// else knows. Once in a view is enough, and a failure that lasts a moment is not reported.
func TestTriesInVainAreToldOnceInAView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		layout, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{8}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var log bytes.Buffer
		views, ended := make(chan kintsugi.View), make(chan error, 1)
		go func() {
			ended <- Run(ctx, Config{Layout: layout, Log: slog.New(slog.NewTextHandler(&log, nil))}, views)
		}()
		for number := range kintsugi.ViewNumber(3) {
			view := kintsugi.View{Number: number + 1, Line: 1, Servers: []kintsugi.Member{{Incarnation: 1, Address: "no address"}}, Chains: [][]kintsugi.ServerID{{0}}}
			views <- view
			if number > 0 {
				time.Sleep(time.Minute)
			}
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if said := log.String(); strings.Count(said, "level=WARN") != 2 || !strings.Contains(said, "view=2") || !strings.Contains(said, "no address") {
			t.Errorf("in two views of three without a way to the server it says\n%s", said)
		}
	})
}

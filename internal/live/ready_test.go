package live

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// The health service says whether a server has all that the view assigns to it. Whoever stops a
// server only while all others are ready takes none away that is still needed.
func TestAServerIsReadyWhenItHasCaughtUp(t *testing.T) {
	ready := func(l *Cluster, i int, service string) bool {
		t.Helper()
		conn, err := grpc.NewClient(l.servers[i].member.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		a, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		return a.Status == healthpb.HealthCheckResponse_SERVING
	}
	for _, replicas := range []int{1, 2} {
		cfg := base(t)
		cfg.Servers, cfg.Replicas = 2, replicas
		run(t, cfg, func(l *Cluster) {
			until(t, l, 5)
			for i := range 2 {
				if !ready(l, i, "") {
					t.Errorf("%d replicas: steps are taken, and server %d is not ready", replicas, i)
				}
			}
			if replicas == 1 {
				return
			}
			l.KillServer(1)
			l.GoOn("it died")
			if err := l.StartServer(1); err != nil {
				t.Fatal(err)
			}
			if ready(l, 1, "") || !ready(l, 1, "alive") {
				t.Error("a server that nobody has taken in yet is ready, or not alive")
			}
			l.GoOn("it came back")
			l.CaughtUp(1)
			if !ready(l, 1, "") {
				t.Error("it has caught up and is not ready")
			}
		})
	}
}

package etcd

import (
	"context"
	"slices"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kintsugi-ml/kintsugi/internal/mtls"
)

// peerName is the common name by which members identify one another: etcd ignores URIs in
// certificates.
const peerName = "etcd"

func scheme(opt Options) string {
	if opt.TLS == nil {
		return "http"
	}
	return "https"
}

// secure makes an etcd listen with TLS only, and guard its keys.
func secure(cfg *embed.Config, c *mtls.Credentials) {
	if c == nil {
		return
	}
	cfg.TlsMinVersion = "TLS1.3"
	info := &cfg.ClientTLSInfo
	info.TrustedCAFile, info.CertFile, info.KeyFile = c.Files()
	info.ClientCertAuth = true
	cfg.PeerTLSInfo = *info
	cfg.PeerTLSInfo.AllowedCNs = []string{peerName}
	cfg.PeerTLSInfo.SkipClientSANVerify = true // do not check the address that a peer comes from: behind a service it differs
	g := guard{domain: c.Domain()}
	cfg.GRPCAdditionalServerOptions = append(cfg.GRPCAdditionalServerOptions, grpc.ChainUnaryInterceptor(g.call), grpc.ChainStreamInterceptor(g.stream))
}

// keepers says which roles may change the keys of a run. A key that ends in a slash means all keys
// below it. An operator may change all keys: it starts and ends runs, and empties the places of
// processes that it has seen die.
var keepers = []struct {
	key   string
	roles []mtls.Role
}{
	{idKey, []mtls.Role{mtls.Coordinator}},
	{viewKey, []mtls.Role{mtls.Coordinator}},
	{waitsKey, []mtls.Role{mtls.Coordinator}},
	{electionPrefix + "/", []mtls.Role{mtls.Coordinator}},
	{fenceKey, []mtls.Role{mtls.Coordinator, mtls.Server}},
	{standingKey, []mtls.Role{mtls.Server}},
	{doneKey, []mtls.Role{mtls.Server}},
	{"life/server/", []mtls.Role{mtls.Server}},
	{"member/server/", []mtls.Role{mtls.Server}},
	{"left/server/", []mtls.Role{mtls.Server}},
	{"life/worker/", []mtls.Role{mtls.Worker}},
	{"member/worker/", []mtls.Role{mtls.Worker}},
	{"left/worker/", []mtls.Role{mtls.Worker}},
	{waitingKey(Server, ""), []mtls.Role{mtls.Server}},
	{waitingKey(Worker, ""), []mtls.Role{mtls.Worker}},
}

// mayChange reports whether a caller may change a key. Of the keys of places, a caller whose
// certificate names a place may change only those of that place.
func mayChange(who mtls.Name, key string) bool {
	if who.Role == mtls.Operator {
		return true
	}
	rest, ours := strings.CutPrefix(key, "/kintsugi/")
	_, key, _ = strings.Cut(rest, "/") // after the name of the run
	for _, k := range keepers {
		below, inside := strings.CutPrefix(key, k.key)
		if !ours || !inside || below != "" && !strings.HasSuffix(k.key, "/") {
			continue
		}
		place := strings.HasPrefix(k.key, "life/") || strings.HasPrefix(k.key, "member/") || strings.HasPrefix(k.key, "left/")
		return slices.Contains(k.roles, who.Role) && (!place || who.Index == mtls.Any || below == strconv.Itoa(who.Index))
	}
	return false
}

// guard checks, before each request to etcd, whether the role of the caller allows it.
type guard struct{ domain string }

// caller returns the caller of a request. It refuses roles that have no business here.
func (g guard) caller(ctx context.Context) (mtls.Name, error) {
	who, _ := mtls.Caller(ctx)
	if who.Domain != g.domain || !slices.Contains([]mtls.Role{mtls.Operator, mtls.Coordinator, mtls.Server, mtls.Worker}, who.Role) {
		return who, status.Errorf(codes.PermissionDenied, "a certificate of %q in the domain %q opens no etcd of the domain %q", who.Role, who.Domain, g.domain)
	}
	return who, nil
}

// call implements grpc.UnaryServerInterceptor.
func (g guard) call(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	who, err := g.caller(ctx)
	if err != nil {
		return nil, err
	}
	if key, ok := allows(who, request); !ok {
		return nil, status.Errorf(codes.PermissionDenied, "%v may not do this in etcd: %s %s", who, info.FullMethod, key)
	}
	return next(ctx, request)
}

// stream implements grpc.StreamServerInterceptor. Streams watch keys, which all roles may read, and
// keep leases alive.
func (g guard) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	who, err := g.caller(stream.Context())
	if err != nil {
		return err
	}
	switch info.FullMethod {
	case "/etcdserverpb.Watch/Watch", "/etcdserverpb.Lease/LeaseKeepAlive":
	default:
		if who.Role != mtls.Operator {
			return status.Errorf(codes.PermissionDenied, "%v may not do this in etcd: %s", who, info.FullMethod)
		}
	}
	return next(server, stream)
}

// allows reports whether a caller may make a request. If not, it returns the key that the request
// is about, if any.
func allows(who mtls.Name, request any) (key string, ok bool) {
	if who.Role == mtls.Operator {
		return "", true
	}
	switch r := request.(type) {
	case *pb.RangeRequest, *pb.LeaseGrantRequest, *pb.LeaseRevokeRequest:
		return "", true
	case *pb.PutRequest:
		return string(r.Key), mayChange(who, string(r.Key))
	case *pb.DeleteRangeRequest:
		return string(r.Key), len(r.RangeEnd) == 0 && mayChange(who, string(r.Key))
	case *pb.TxnRequest:
		for _, op := range slices.Concat(r.Success, r.Failure) {
			if key, ok := allows(who, part(op)); !ok {
				return key, false
			}
		}
		return "", true
	}
	return "", false
}

// part returns the request inside a part of a transaction, or nil for an unknown kind.
func part(op *pb.RequestOp) any {
	switch r := op.Request.(type) {
	case *pb.RequestOp_RequestRange:
		return r.RequestRange
	case *pb.RequestOp_RequestPut:
		return r.RequestPut
	case *pb.RequestOp_RequestDeleteRange:
		return r.RequestDeleteRange
	case *pb.RequestOp_RequestTxn:
		return r.RequestTxn
	}
	return nil
}

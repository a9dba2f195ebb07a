package etcd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kintsugi-ml/kintsugi"
)

// Kind is the kind of a process.
type Kind string

// The kinds.
const (
	Server Kind = "server"
	Worker Kind = "worker"
)

// Member is one life of a process that is present.
type Member struct {
	Kind        Kind
	Index       uint32 // kintsugi.ServerID or kintsugi.Slot
	Incarnation kintsugi.Incarnation

	// Since is when the place was last filled after being empty. If a life was away and came back,
	// its Since has increased.
	Since Revision

	// Value is what the process said of itself at registration, in JSON.
	Value json.RawMessage
}

// String returns the member's name in logs and errors, such as "server/0".
func (m Member) String() string { return fmt.Sprintf("%s/%d", m.Kind, m.Index) }

// record is the stored form of a member.
type record struct {
	Incarnation kintsugi.Incarnation `json:"incarnation"`
	Value       json.RawMessage      `json:"value"`
}

// life is what is stored of the newest life of a place. Without the mark, a life could be taken for
// one of the same incarnation if etcd has lost its data, and incarnations begin again.
type life struct {
	Incarnation kintsugi.Incarnation `json:"incarnation"`
	Mark        string               `json:"mark"` // random
}

func lifeKey(k Kind, index uint32) string   { return fmt.Sprintf("life/%s/%d", k, index) }
func memberKey(k Kind, index uint32) string { return fmt.Sprintf("member/%s/%d", k, index) }
func leftKey(k Kind, index uint32) string   { return fmt.Sprintf("left/%s/%d", k, index) }

// parseMember returns the member stored in kv, or false if kv was not written by this package.
func (c *Client) parseMember(kv *mvccpb.KeyValue) (Member, bool) {
	kind, number, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), c.prefix+"member/"), "/")
	index, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return Member{}, false
	}
	m := Member{Kind: Kind(kind), Index: uint32(index), Since: Revision(kv.CreateRevision)}
	r, err := decode[record](memberKey(m.Kind, m.Index), kv.Value)
	m.Incarnation, m.Value = r.Incarnation, r.Value
	return m, err == nil
}

// Vacate empties a place whose process is known to be dead, so that nobody has to wait for its
// lease. dead decides whether the present life is that of the dead process: a life that has come
// meanwhile keeps the place. Vacate waits for etcd until ctx ends.
func (c *Client) Vacate(ctx context.Context, k Kind, index uint32, dead func(Member) bool) error {
	key := c.prefix + memberKey(k, index)
	r, err := c.etcd.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("vacate %s/%d: %w", k, index, err)
	}
	for _, m := range c.parseMembers(r.Kvs) {
		if !dead(m) {
			continue
		}
		same := clientv3.Compare(clientv3.ModRevision(key), "=", r.Kvs[0].ModRevision)
		if _, err := c.etcd.Txn(ctx).If(same).Then(clientv3.OpDelete(key)).Commit(); err != nil {
			return fmt.Errorf("vacate %s/%d: %w", k, index, err)
		}
	}
	return nil
}

// Members returns the members of a kind, by index.
func (c *Client) Members(ctx context.Context, k Kind) ([]Member, error) {
	r, err := c.etcd.Get(ctx, c.prefix+"member/"+string(k)+"/", clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("list %ss: %w", k, err)
	}
	return c.parseMembers(r.Kvs), nil
}

// Left returns the newest life that has left a place by Leave, or 0.
func (c *Client) Left(ctx context.Context, k Kind, index uint32) (kintsugi.Incarnation, error) {
	key := leftKey(k, index)
	b, _, found, err := c.get(ctx, key)
	if err != nil {
		return 0, fmt.Errorf("ask who has left as %s/%d: %w", k, index, err)
	}
	if !found {
		return 0, nil
	}
	return decode[kintsugi.Incarnation](key, b)
}

func (c *Client) parseMembers(kvs []*mvccpb.KeyValue) []Member {
	var members []Member
	for _, kv := range kvs {
		if m, ok := c.parseMember(kv); ok {
			members = append(members, m)
		}
	}
	slices.SortFunc(members, byIndex)
	return members
}

func byIndex(a, b Member) int { return cmp.Compare(a.Index, b.Index) }

// WatchMembers returns a channel with the list of all members of a kind, by index: immediately, and
// again after each change. The channel holds only the newest list. A member that left and came back
// in between is recognised by its incarnation or by Since. The receiver owns the list, but for the
// bytes of the values, which later lists have too. The channel is closed when ctx ends.
func (c *Client) WatchMembers(ctx context.Context, k Kind) <-chan []Member {
	out := newLatest[[]Member]()
	present := make(map[string]Member)
	put := func(kv *mvccpb.KeyValue) {
		delete(present, string(kv.Key))
		if m, ok := c.parseMember(kv); ok {
			present[string(kv.Key)] = m
		}
	}
	send := func() { out.send(slices.SortedFunc(maps.Values(present), byIndex)) }
	go func() {
		defer close(out)
		c.follow(ctx, "member/"+string(k)+"/", true, func(kvs []*mvccpb.KeyValue) {
			clear(present)
			for _, kv := range kvs {
				put(kv)
			}
			send()
		}, func(events []*clientv3.Event) {
			for _, e := range events {
				if e.Type == clientv3.EventTypeDelete {
					delete(present, string(e.Kv.Key))
				} else {
					put(e.Kv)
				}
			}
			send()
		})
	}()
	return out
}

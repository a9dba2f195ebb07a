package notice

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// aws asks for the action that is planned for a spot instance.
type aws struct {
	token string
}

const (
	awsToken      = "/latest/api/token"
	awsAction     = "/latest/meta-data/spot/instance-action"
	awsTokenLives = "21600" // seconds, the most there is
)

func (*aws) every() time.Duration { return 5 * time.Second }

func (a *aws) ask(ctx context.Context, m *metadata) (*Notice, error) {
	for fresh := a.token == ""; ; fresh = true {
		if fresh {
			status, token, _, err := m.do(ctx, http.MethodPut, awsToken, "X-aws-ec2-metadata-token-ttl-seconds", awsTokenLives, answerTime)
			if err != nil {
				return nil, err
			}
			if status != http.StatusOK {
				return nil, unexpected(awsToken, status)
			}
			a.token = string(token)
		}
		status, body, _, err := m.do(ctx, http.MethodGet, awsAction, "X-aws-ec2-metadata-token", a.token, answerTime)
		switch {
		case err != nil:
			return nil, err
		case status == http.StatusNotFound:
			return nil, nil
		case status == http.StatusUnauthorized && !fresh:
			continue // the token has lapsed
		case status != http.StatusOK:
			return nil, unexpected(awsAction, status)
		}
		var planned struct {
			Action string    `json:"action"`
			Time   time.Time `json:"time"`
		}
		if err := json.Unmarshal(body, &planned); err != nil {
			return nil, fmt.Errorf("%s: %w", awsAction, err)
		}
		if planned.Time.IsZero() {
			planned.Time = time.Now().Add(m.warning)
		}
		return &Notice{Reason: "aws: " + planned.Action, Deadline: planned.Time, Machine: true}, nil
	}
}

// gcp waits for the word that the instance is preempted.
type gcp struct {
	etag string // of the value that was seen last; "": none was
}

const (
	gcpPreempted = "/computeMetadata/v1/instance/preempted"
	gcpWarning   = 30 * time.Second // between the word and the end
	gcpWait      = 60 * time.Second // of one request that waits
)

// every is short: the request itself waits.
func (*gcp) every() time.Duration { return 100 * time.Millisecond }

func (g *gcp) ask(ctx context.Context, m *metadata) (*Notice, error) {
	path, within := gcpPreempted, answerTime
	if g.etag != "" {
		q := url.Values{"wait_for_change": {"true"}, "timeout_sec": {fmt.Sprint(int(gcpWait.Seconds()))}, "last_etag": {g.etag}}
		path, within = path+"?"+q.Encode(), gcpWait+answerTime
	}
	status, body, header, err := m.do(ctx, http.MethodGet, path, "Metadata-Flavor", "Google", within)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, unexpected(gcpPreempted, status)
	}
	if strings.TrimSpace(string(body)) == "TRUE" {
		return &Notice{Reason: "gcp: preempted", Deadline: time.Now().Add(gcpWarning), Machine: true}, nil
	}
	g.etag = header.Get("ETag")
	if g.etag == "" {
		return nil, fmt.Errorf("%s answers without an ETag, so that its changes cannot be waited for", gcpPreempted)
	}
	return nil, nil
}

// azure asks for the events that are planned for machines near this one, and looks for itself among them.
type azure struct {
	name string // of this machine; "": not known yet
}

const (
	azureName   = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
	azureEvents = "/metadata/scheduledevents?api-version=2020-07-01"
)

func (*azure) every() time.Duration { return time.Second }

func (a *azure) ask(ctx context.Context, m *metadata) (*Notice, error) {
	if a.name == "" {
		status, name, _, err := m.do(ctx, http.MethodGet, azureName, "Metadata", "true", answerTime)
		if err != nil {
			return nil, err
		}
		if status != http.StatusOK {
			return nil, unexpected(azureName, status)
		}
		a.name = strings.TrimSpace(string(name))
	}
	// The first question of a machine switches the service on, which takes up to two minutes.
	status, body, _, err := m.do(ctx, http.MethodGet, azureEvents, "Metadata", "true", 2*time.Minute)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, unexpected(azureEvents, status)
	}
	var planned struct {
		Events []struct {
			EventType string
			Resources []string
			NotBefore string
		}
	}
	if err := json.Unmarshal(body, &planned); err != nil {
		return nil, fmt.Errorf("%s: %w", azureEvents, err)
	}
	for _, e := range planned.Events {
		if e.EventType == "Freeze" || !slices.Contains(e.Resources, a.name) { // after a freeze everything is there still
			continue
		}
		n := &Notice{Reason: "azure: " + e.EventType, Deadline: time.Now().Add(m.warning), Machine: true}
		if at, err := http.ParseTime(e.NotBefore); err == nil { // without a time it has begun
			n.Deadline = at
		}
		return n, nil
	}
	return nil, nil
}

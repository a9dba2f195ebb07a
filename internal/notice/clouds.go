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

// aws asks for the planned action on a spot instance.
type aws struct {
	token string
}

const (
	awsToken      = "/latest/api/token"
	awsAction     = "/latest/meta-data/spot/instance-action"
	awsTokenLives = "21600" // in seconds; the maximum
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
			a.token = strings.TrimSpace(string(token))
		}
		status, body, _, err := m.do(ctx, http.MethodGet, awsAction, "X-aws-ec2-metadata-token", a.token, answerTime)
		switch {
		case err == nil && status == http.StatusNotFound:
			return nil, nil
		case err == nil && status == http.StatusUnauthorized && !fresh:
			continue // the token has expired
		case err == nil && status == http.StatusOK:
			return m.instanceAction(body)
		}
		a.token = "" // the token may be invalid
		if err == nil {
			err = unexpected(awsAction, status)
		}
		return nil, err
	}
}

// instanceAction parses the planned action. Even without a valid time it yields a notice.
func (m *metadata) instanceAction(body []byte) (*Notice, error) {
	var planned struct{ Action, Time string }
	if err := json.Unmarshal(body, &planned); err != nil {
		return nil, fmt.Errorf("%s: %w", awsAction, err)
	}
	if planned.Action == "" {
		return nil, fmt.Errorf("%s answers without an action", awsAction)
	}
	at, _ := time.Parse(time.RFC3339, planned.Time)
	return m.notice("aws: "+planned.Action, at), nil
}

// notice returns a notice for the machine. If the time has passed, as with a different clock, the
// usual warning time is used instead.
func (m *metadata) notice(reason string, at time.Time) *Notice {
	if now := time.Now(); !at.After(now) {
		at = now.Add(m.warning)
	}
	return &Notice{Reason: reason, Deadline: at, Machine: true}
}

// gcp waits until the instance is marked as preempted.
type gcp struct {
	etag string // of the last value; "": none yet
}

const (
	gcpPreempted = "/computeMetadata/v1/instance/preempted"
	gcpWarning   = 30 * time.Second // between the mark and the end
	gcpWait      = 60 * time.Second // of one waiting request
)

// every returns a short pause, since the request itself waits.
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
	switch word := strings.TrimSpace(string(body)); word {
	case "TRUE":
		return m.notice("gcp: preempted", time.Now().Add(gcpWarning)), nil
	case "FALSE":
	default:
		return nil, fmt.Errorf("%s answered %.40q, which is neither TRUE nor FALSE", gcpPreempted, word)
	}
	g.etag = header.Get("ETag")
	if g.etag == "" {
		return nil, fmt.Errorf("%s answers without an ETag, so that its changes cannot be waited for", gcpPreempted)
	}
	return nil, nil
}

// azure asks for the planned events of this group of machines, and looks for its own machine in
// them.
type azure struct {
	name string // name of this machine; "": not known yet
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
		text := strings.TrimSpace(string(name))
		if text == "" || strings.ContainsAny(text, " \t\r\n<>") {
			return nil, fmt.Errorf("%s answered %.40q, which is no name of a machine", azureName, text)
		}
		a.name = text
	}
	// The first request of a machine activates the service, which may take up to two minutes.
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
	var first *Notice
	for _, e := range planned.Events {
		if e.EventType == "Freeze" || !slices.Contains(e.Resources, a.name) { // after a freeze everything is still there
			continue
		}
		at, _ := http.ParseTime(e.NotBefore) // without a time, the event has begun
		if n := m.notice("azure: "+e.EventType, at); first == nil || n.Deadline.Before(first.Deadline) {
			first = n
		}
	}
	return first, nil
}

package object

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Place says in which object store a checkpoint lies, and where.
type Place struct {
	Scheme   string // AmazonScheme, GoogleScheme or AzureScheme
	Bucket   string // Azure calls it a container
	Prefix   string // of all names, without leading or trailing slashes; may be empty
	Endpoint string // host and port; of AzureScheme, also the path above all containers, if any
	Plain    bool   // HTTP without TLS
	Region   string // of AmazonScheme; empty: the store is asked
	Account  string // of AzureScheme

	// Patience is how long a request may take before it is given up; 0: as DefaultRetries says.
	Patience time.Duration
}

// The beginnings of the names of places, by the protocol that the store speaks.
const (
	AmazonScheme = "s3://" // and many others that speak the same
	GoogleScheme = "gs://"
	AzureScheme  = "az://"
)

// forms says how places are written, for those who wrote one otherwise.
const forms = "a folder, memory://host:port/prefix, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix?account=name; options follow as in s3://bucket/prefix?endpoint=https://host:port&region=name&patience=20s"

// ParsePlace reads s3://bucket/prefix, gs://bucket/prefix or az://container/prefix, and the options
// endpoint=URL, patience=DURATION, region=NAME of s3 and account=NAME of az. getenv returns variables
// of the environment, which may have what the text lacks: AWS_ENDPOINT_URL, AZURE_STORAGE_ACCOUNT.
// The error is kintsugi.ErrUsage; it never repeats what may be a password.
func ParsePlace(s string, getenv func(string) string) (Place, error) {
	usage := func(format string, args ...any) (Place, error) {
		return Place{}, fmt.Errorf("%w: %s", kintsugi.ErrUsage, fmt.Sprintf(format, args...))
	}
	u, err := url.Parse(s)
	if err != nil || !slices.Contains([]string{AmazonScheme, GoogleScheme, AzureScheme}, u.Scheme+"://") {
		return usage("this is no store: one is %s", forms)
	}
	p := Place{Scheme: u.Scheme + "://", Bucket: u.Host, Prefix: clean(u.Path)}
	if u.User != nil {
		return usage("keys do not belong into it, but into %s", p.keys())
	}
	if u.Host == "" {
		return usage("this names no bucket: a store is %s", forms)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Fragment != "" {
		return usage("what follows the prefix cannot be read")
	}
	var endpoint string
	for name, values := range query {
		switch {
		case name == "endpoint":
			endpoint = values[0]
		case name == "region" && p.Scheme == AmazonScheme:
			p.Region = values[0]
		case name == "account" && p.Scheme == AzureScheme:
			p.Account = values[0]
		case name == "patience":
			if p.Patience, err = time.ParseDuration(values[0]); err != nil || p.Patience < time.Millisecond || p.Patience > time.Hour {
				return usage("patience must be a duration such as 20s")
			}
		default:
			return usage("%q is no option of %s: a store is %s", name, p.Scheme, forms)
		}
	}
	if p.Scheme == AzureScheme {
		p.Account = cmp.Or(p.Account, getenv("AZURE_STORAGE_ACCOUNT"))
		if !isLabel(p.Account) {
			return usage("the account must be named: az://%s/%s?account=name, or AZURE_STORAGE_ACCOUNT", p.Bucket, p.Prefix)
		}
	}
	e, err := url.Parse(cmp.Or(endpoint, p.endpoint(getenv)))
	hasPath := err == nil && strings.Trim(e.Path, "/") != ""
	if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" || e.User != nil || e.RawQuery != "" || hasPath && p.Scheme != AzureScheme {
		return usage("the endpoint must be http://host:port or https://host:port")
	}
	if p.Scheme == AmazonScheme && strings.HasSuffix(e.Hostname(), "storage.googleapis.com") {
		// It answers 200 and replaces what is there (github.com/ClickHouse/ClickHouse/issues/115266).
		return usage("what Google offers under s3:// ignores that an object must not be replaced: write gs://%s/%s", p.Bucket, p.Prefix)
	}
	p.Endpoint, p.Plain = strings.TrimSuffix(e.Host+e.Path, "/"), e.Scheme == "http"
	return p, nil
}

// isLabel reports whether a name can stand in the name of a host.
func isLabel(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' })
}

// endpoint returns the address of the store for places that name none.
func (p Place) endpoint(getenv func(string) string) string {
	switch p.Scheme {
	case GoogleScheme:
		return "https://storage.googleapis.com"
	case AzureScheme:
		return "https://" + p.Account + ".blob.core.windows.net"
	default:
		return cmp.Or(getenv("AWS_ENDPOINT_URL"), "https://s3.amazonaws.com")
	}
}

// keys says where keys come from.
func (p Place) keys() string {
	switch p.Scheme {
	case GoogleScheme:
		return "GOOGLE_APPLICATION_CREDENTIALS, gcloud auth application-default login or the service account of this machine"
	case AzureScheme:
		return "AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, az login or the identity of this machine"
	default:
		return "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or ~/.aws/credentials"
	}
}

// where names the bucket in errors.
func (p Place) where() string { return fmt.Sprintf("bucket %s at %s", p.Bucket, p.Endpoint) }

// Open returns the bucket of a place, without asking it for anything yet. It can be used until ctx
// ends. Keys come from getenv, which returns variables of the environment, and from where the clients
// of each protocol look for them; docs/checkpoints.md lists both.
func Open(ctx context.Context, p Place, getenv func(string) string) (Store, error) {
	switch p.Scheme {
	case GoogleScheme:
		return openGoogle(ctx, p)
	case AzureScheme:
		return openAzure(p, getenv)
	default:
		return openS3(p)
	}
}

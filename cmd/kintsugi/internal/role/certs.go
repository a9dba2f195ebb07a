package role

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
)

// CertsCommand returns the command that makes certificates for a run.
func CertsCommand() *cobra.Command {
	var hosts []string
	out, domain, days := "", "", 0
	cmd := &cobra.Command{
		Use: "certs [PLACE...]", Short: "Make certificates for --tls, if you have no authority that does",
		Long: "Certs makes an authority and a certificate for each role, or for the roles and places that you name, such as server, worker/3 or operator. Each\n" +
			"gets a folder of its own below --out: copy it to the hosts that run such processes. Keep ca-key.pem here, since whoever has it can\n" +
			"make certificates. If you run it again, it renews the certificates, which processes take up without a restart.",
		Example: "  kintsugi certs --out certs --hosts 10.0.0.1,10.0.0.2,node-a.example.org\n  kintsugi certs --out certs --days 7 server/0 server/1 worker",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return fmt.Errorf("%w: --out is needed: a folder, for the authority and for a folder of each role", kintsugi.ErrUsage)
			}
			if days < 1 || days > mostDays {
				return fmt.Errorf("%w: --days %d: use 1 to %d", kintsugi.ErrUsage, days, mostDays)
			}
			names, err := certNames(args, domain)
			if err != nil {
				return err
			}
			folders, err := mtls.Make(out, mtls.Order{Names: names, Hosts: hosts, Now: time.Now(), Life: time.Duration(days) * 24 * time.Hour})
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			for i, f := range folders {
				fmt.Fprintf(w, "%s: %s\n", f, names[i].URI())
			}
			fmt.Fprintf(w, "valid for %d days; keep %s where nobody else reads it\n", days, filepath.Join(out, mtls.AuthorityKeyFile))
			fmt.Fprintf(w, "on this host: --tls %s\n", out)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "folder for the authority, which is made if there is none, and for the certificates")
	f.StringSliceVar(&hosts, "hosts", nil, "names and addresses at which servers, etcds and memory are reached; localhost is always one of them")
	f.StringVar(&domain, "domain", "local", "trust domain: processes trust only those of the same domain, which keeps runs with one authority apart")
	f.IntVar(&days, "days", 365, "how long the certificates are valid")
	return cmd
}

// mostDays are ten years. Much larger numbers of days overflow a duration, which might leave an
// hour.
const mostDays = 3650

// certNames returns the names of places in a domain, or of all roles if there are no places.
func certNames(places []string, domain string) (names []mtls.Name, err error) {
	if len(places) == 0 {
		for _, r := range mtls.Roles() {
			places = append(places, string(r))
		}
	}
	for _, p := range places {
		n, err := mtls.ParsePlace(p)
		if err != nil {
			return nil, err
		}
		n.Domain = domain
		names = append(names, n)
	}
	return names, nil
}

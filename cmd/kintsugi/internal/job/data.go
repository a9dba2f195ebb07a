package job

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/worker/data"
)

// DataCommand returns the command that lists and fetches data sets.
func DataCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "data", Short: "List, download and verify data sets", Args: cli.NoArgs, Example: "  kintsugi data list",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	dir, base := "", ""
	list := &cobra.Command{
		Use: "list", Short: "List the data sets", Args: cli.NoArgs, Example: "  kintsugi data list",
		RunE: func(cmd *cobra.Command, _ []string) error { return listData(cmd.OutOrStdout()) },
	}
	fetch := &cobra.Command{
		Use: "fetch NAME", Short: "Download a data set and check it against the publisher's checksums", Args: cli.OneArg("data set"),
		Example: "  kintsugi data fetch mnist --data-dir ~/data",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := Load(cmd.Flags(), ""); err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			return data.Fetch(cmd.Context(), args[0], dir, data.Options{BaseURL: base, Progress: func(file string, done, total int64) {
				if done == total {
					fmt.Fprintf(w, "%s: %d bytes, checksum right\n", file, total)
				}
			}})
		},
	}
	fetch.Flags().StringVar(&dir, "data-dir", "data", "folder for the data sets (default $KINTSUGI_DATA, else data)")
	fetch.Flags().StringVar(&base, "base-url", "", "a mirror: the files are at URL/NAME; checksums are the publisher's")
	verify := &cobra.Command{
		Use: "verify NAME", Short: "Check a downloaded data set against the publisher's checksums", Args: cli.OneArg("data set"),
		Example: "  kintsugi data verify mnist --data-dir ~/data",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := Load(cmd.Flags(), ""); err != nil {
				return err
			}
			if err := data.Verify(args[0], dir); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s in %s: every file is right\n", args[0], dir)
			return err
		},
	}
	verify.Flags().StringVar(&dir, "data-dir", "data", "folder of the data sets (default $KINTSUGI_DATA, else data)")
	cmd.AddCommand(list, fetch, verify)
	return cmd
}

func listData(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tDOWNLOAD\tLICENCE\tDESCRIPTION")
	for _, i := range data.List() {
		size := "-"
		if i.Bytes > 0 {
			size = fmt.Sprintf("%.1f MB", float64(i.Bytes)/1e6)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", i.Name, size, i.Licence, i.Description)
	}
	return t.Flush()
}

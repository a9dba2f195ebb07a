package role

import "context"

// endsIfItHangs lets this process end if device has a GPU that hangs: others wait for it, its lease
// does not show it, and nothing else ends the call that does not return.
func (p *Process) endsIfItHangs(device any) {
	p.WatchGPU(device, func(err error) { p.hung <- err })
}

// unlessItHangs runs a role until it ends, or until its GPU hangs. What it was doing is left undone then, as
// if the process were killed.
func (p *Process) unlessItHangs(ctx context.Context, run func(context.Context, *Process) error) error {
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, p) }()
	select {
	case err := <-ended:
		return err
	case err := <-p.hung:
		return err
	}
}

package job

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
)

// Protection is the meaning of a word of --recovery: how much of a shard survives which failure.
// The words are presets of these settings.
type Protection struct {
	checkpoints bool          // full checkpoints during the run, not only at its end
	Replicas    int           // of each shard, unless --replicas is given
	Outside     bool          // a shard is also in memory outside its process
	Next        bool          // the replica after the head answers, and the replicas after that follow
	Copies      kintsugi.Step // steps between two copies that replicas get of a shard; 0: they get every update
	Running     *ScarKnobs    // the running checkpoint, from which lost shards come back alone; nil: all shards go back together
	goesOn      bool          // workers compute while servers are away, if late gradients count
	sums        bool          // these gradients are summed
	Chooses     bool          // the number of replicas follows the run's measurements
	Most        int           // largest number of replicas in that case
}

// gold uses goldFraction as the initial fraction of the running checkpoint. The checkpoint is
// rarely needed, so a few large saves cost the least.
const goldFraction = 1.0 / 4

// recoveryForms lists the values of --recovery.
const recoveryForms = "gold, auto, " + chainForms + ", checkpoint, " + scarForms + ", " + statelessForms + " or none"

// parseRecovery parses a word of --recovery for a run with the given number of servers.
func parseRecovery(word string, servers int) (p Protection, err error) {
	p = Protection{checkpoints: true, Replicas: 1}
	name, option, has := strings.Cut(word, ":")
	if knobs, ok, err := parseScar(word); ok {
		p.Running = &knobs
		return p, err
	}
	switch {
	case word == "gold":
		p.Replicas, p.Outside, p.goesOn = min(2, max(1, servers)), true, true
		p.Running = &ScarKnobs{Fraction: goldFraction, Period: ScarLongest, Adaptive: true, Behind: true}
	case word == "auto":
		p, err = parseRecovery("gold", servers)
		p.Chooses, p.Most = true, p.Replicas
		return p, err
	case name == "chain":
		p.Replicas = 2
		switch {
		case option == "next":
			p.Replicas, p.Next = 3, true
		case has:
			p.Replicas = max(2, min(3, servers))
			p.Copies, err = parseCopies(word, option)
		}
		return p, err
	case word == "checkpoint":
	case word == "none":
		p.checkpoints = false
	case name == "stateless":
		if has && option != "paper" {
			return p, fmt.Errorf("%w: --recovery %q: use %s", kintsugi.ErrUsage, word, statelessForms)
		}
		p.Outside, p.goesOn, p.sums = true, true, has
	default:
		return p, fmt.Errorf("%w: --recovery %q is unknown; use %s", kintsugi.ErrUsage, word, recoveryForms)
	}
	return p, nil
}

// chainForms lists the forms of --recovery chain.
const chainForms = "chain[:next|:paper[,STEPS]]"

// paperCopies is the number of updates between two copies in Training Through Failure (Cao, Luo,
// Gan and Jinesh, 2024), whose chains have three replicas.
const paperCopies = 100

// parseCopies parses the option of chain:paper: the steps between two copies.
func parseCopies(word, option string) (kintsugi.Step, error) {
	name, steps, has := strings.Cut(option, ",")
	n := uint64(paperCopies)
	var err error
	if has {
		n, err = strconv.ParseUint(steps, 10, 32)
	}
	if name != "paper" || err != nil || n < 1 {
		return 0, fmt.Errorf("%w: --recovery %q: use %s, where with paper replicas get a copy every so many steps, such as chain:paper,100; --replicas says how many there are", kintsugi.ErrUsage, word, chainForms)
	}
	return kintsugi.Step(n), nil
}

// Protection returns the protection of the settings, including --replicas.
func (s *Settings) Protection() (Protection, error) {
	p, err := parseRecovery(s.Recovery, s.Servers)
	if err != nil {
		return p, err
	}
	if s.Replicas != 0 {
		p.Replicas, p.Most = s.Replicas, max(s.Replicas, p.Most)
	}
	gold := s.Recovery == "gold" || s.Recovery == "auto"
	if p.Replicas > 1 && gold {
		p.Outside = p.Chooses // that memory is on other servers
	}
	switch {
	case p.Next && p.Replicas < 3:
		err = fmt.Errorf("%w: --recovery %s needs --replicas of at least 3: with two the next replica is the last one, as with --recovery chain", kintsugi.ErrUsage, s.Recovery)
	case strings.HasPrefix(s.Recovery, "chain") && p.Replicas < 2:
		err = fmt.Errorf("%w: --recovery %s needs --replicas of at least 2", kintsugi.ErrUsage, s.Recovery)
	case !gold && p.Replicas > 1 && (p.Running != nil || p.Outside):
		err = fmt.Errorf("%w: --recovery %s restores shards that are lost with their one replica; use --recovery chain or gold for more", kintsugi.ErrUsage, s.Recovery)
	}
	return p, err
}

// Protects is protection for settings that are checked.
func (s *Settings) Protects() Protection {
	p, _ := s.Protection()
	return p
}

// Way returns how the shard of a lost server comes back.
func (p *Protection) Way() launch.Way {
	switch {
	case p.Copies > 0:
		return launch.BackToCopy
	case p.Replicas > 1 || p.Outside:
		return launch.BackNowhere
	case p.Running != nil:
		return launch.BackAlone
	case !p.checkpoints:
		return launch.BackToStart
	}
	return launch.BackToCheckpoint
}

// PlaceOnOneHost sets defaults that depend on where servers run. If all run on one host, a replica
// on another server protects from the same failures as memory outside the process, but costs more.
func (s *Settings) PlaceOnOneHost() {
	if s.Replicas == 0 && (s.Recovery == "gold" || s.Recovery == "auto") {
		s.Replicas = 1
	}
}

package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
)

// protection is the meaning of a word of --recovery: how much of a shard survives which failure.
// The words are presets of these settings.
type protection struct {
	checkpoints bool          // full checkpoints during the run, not only at its end
	replicas    int           // of each shard, unless --replicas is given
	outside     bool          // a shard is also in memory outside its process
	next        bool          // the replica after the head answers, and the replicas after that follow
	copies      kintsugi.Step // steps between two copies that replicas get of a shard; 0: they get every update
	running     *scarKnobs    // the running checkpoint, from which lost shards come back alone; nil: all shards go back together
	goesOn      bool          // workers compute while servers are away, if late gradients count
	sums        bool          // these gradients are summed
	chooses     bool          // the number of replicas follows the run's measurements
	most        int           // largest number of replicas in that case
}

// gold uses goldFraction as the initial fraction of the running checkpoint. The checkpoint is
// rarely needed, so a few large saves cost the least.
const goldFraction = 1.0 / 4

// recoveryForms lists the values of --recovery.
const recoveryForms = "gold, auto, " + chainForms + ", checkpoint, " + scarForms + ", " + statelessForms + " or none"

// parseRecovery parses a word of --recovery for a run with the given number of servers.
func parseRecovery(word string, servers int) (p protection, err error) {
	p = protection{checkpoints: true, replicas: 1}
	name, option, has := strings.Cut(word, ":")
	if knobs, ok, err := parseScar(word); ok {
		p.running = &knobs
		return p, err
	}
	switch {
	case word == "gold":
		p.replicas, p.outside, p.goesOn = min(2, max(1, servers)), true, true
		p.running = &scarKnobs{fraction: goldFraction, period: longest, adaptive: true, behind: true}
	case word == "auto":
		p, err = parseRecovery("gold", servers)
		p.chooses, p.most = true, p.replicas
		return p, err
	case name == "chain":
		p.replicas = 2
		switch {
		case option == "next":
			p.replicas, p.next = 3, true
		case has:
			p.replicas = max(2, min(3, servers))
			p.copies, err = parseCopies(word, option)
		}
		return p, err
	case word == "checkpoint":
	case word == "none":
		p.checkpoints = false
	case name == "stateless":
		if has && option != "paper" {
			return p, fmt.Errorf("%w: --recovery %q: use %s", kintsugi.ErrUsage, word, statelessForms)
		}
		p.outside, p.goesOn, p.sums = true, true, has
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

// protection returns the protection of the settings, including --replicas.
func (s *settings) protection() (protection, error) {
	p, err := parseRecovery(s.Recovery, s.Servers)
	if err != nil {
		return p, err
	}
	if s.Replicas != 0 {
		p.replicas, p.most = s.Replicas, max(s.Replicas, p.most)
	}
	gold := s.Recovery == "gold" || s.Recovery == "auto"
	if p.replicas > 1 && gold {
		p.outside = p.chooses // that memory is on other servers
	}
	switch {
	case p.next && p.replicas < 3:
		err = fmt.Errorf("%w: --recovery %s needs --replicas of at least 3: with two the next replica is the last one, as with --recovery chain", kintsugi.ErrUsage, s.Recovery)
	case strings.HasPrefix(s.Recovery, "chain") && p.replicas < 2:
		err = fmt.Errorf("%w: --recovery %s needs --replicas of at least 2", kintsugi.ErrUsage, s.Recovery)
	case !gold && p.replicas > 1 && (p.running != nil || p.outside):
		err = fmt.Errorf("%w: --recovery %s restores shards that are lost with their one replica; use --recovery chain or gold for more", kintsugi.ErrUsage, s.Recovery)
	}
	return p, err
}

// protects is protection for settings that are checked.
func (s *settings) protects() protection {
	p, _ := s.protection()
	return p
}

// way returns how the shard of a lost server comes back.
func (p *protection) way() launch.Way {
	switch {
	case p.copies > 0:
		return launch.BackToCopy
	case p.replicas > 1 || p.outside:
		return launch.BackNowhere
	case p.running != nil:
		return launch.BackAlone
	case !p.checkpoints:
		return launch.BackToStart
	}
	return launch.BackToCheckpoint
}

// placeOnOneHost sets defaults that depend on where servers run. If all run on one host, a replica
// on another server protects from the same failures as memory outside the process, but costs more.
func (s *settings) placeOnOneHost() {
	if s.Replicas == 0 && (s.Recovery == "gold" || s.Recovery == "auto") {
		s.Replicas = 1
	}
}

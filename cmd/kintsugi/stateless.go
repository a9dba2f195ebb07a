package main

import (
	"fmt"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// statelessForms says what --recovery stateless may be.
const statelessForms = "stateless[:paper]"

// stateless reports whether servers keep their shards outside of themselves. Another word behind the colon than paper is an ErrUsage.
func (s *settings) stateless() (bool, error) {
	word, option, has := strings.Cut(s.Recovery, ":")
	if word != "stateless" {
		return false, nil
	}
	if has && option != "paper" {
		return true, fmt.Errorf("%w: --recovery %q: use %s", kintsugi.ErrUsage, s.Recovery, statelessForms)
	}
	return true, nil
}

// keepsOutside is stateless for settings that are checked.
func (s *settings) keepsOutside() bool {
	ok, _ := s.stateless()
	return ok
}

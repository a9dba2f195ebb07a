package roster

import "github.com/kintsugi-ml/kintsugi"

// choose says how many replicas each shard has, or is to have in the next view. What is wanted
// waits until the view is whole: a change begins a line that keeps everything, and must not come
// between a death and what makes up for it.
func (s *State) choose() {
	s.replicas = s.cfg.Replicas
	if !s.cfg.Chooses || s.view == nil || s.view.Replicas < 1 || len(s.view.Servers) != s.cfg.Servers {
		return
	}
	s.replicas = s.view.Replicas
	if n := s.wanted.Replicas; 1 <= n && n <= s.cfg.Servers && n != s.replicas && s.calm() {
		s.replicas = n
	}
}

// calm reports whether everybody is there as the view has it, and everybody heads the shard that it
// heads at home or has all of it.
func (s *State) calm() bool {
	if len(s.absent()) > 0 {
		return false
	}
	for id := range kintsugi.ServerID(s.cfg.Servers) {
		if s.fate(s.present[id]) != kept || !inAny(s.view.Chains[id:id+1], id) || !s.has(int(id), id) || s.present[id].Whole < s.view.Newest(id) {
			return false
		}
	}
	return true
}

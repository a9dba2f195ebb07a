package roster

import "github.com/kintsugi-ml/kintsugi"

// choose sets how many replicas each shard has, or will have in the next view. A change begins a
// line that keeps everything. So the number that is wanted waits until the view is whole: the
// change must not come between a death and its repair.
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

// calm reports whether every server of the view is present, and each heads the shards that it heads
// at home, or has everything of them.
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

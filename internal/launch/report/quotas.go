package report

// quotaRow says why a step waited for as many gradients as it did.
type quotaRow struct{ Step, Quota, Reason string }

// quotaRows is how many steps the table of reasons has at most.
const quotaRows = 12

// quotas returns the reasons of steps at equal distances, the first among them: what the pointer
// finds in the figure, in print. A run whose reason never changes has none.
func (s *story) quotas() []quotaRow {
	base := s.survivors()
	var told []int // spans with a reason
	for _, i := range base {
		if s.spans[i].Why.Reason != "" {
			told = append(told, i)
		}
	}
	if len(told) < 2 {
		return nil
	}
	var rows []quotaRow
	next := 0
	for _, i := range told {
		if len(rows) > 0 && i < next {
			continue
		}
		next = i + (len(s.spans)+quotaRows-1)/quotaRows
		why := s.spans[i].Why
		rows = append(rows, quotaRow{count(why.Step), count(int(why.Quota)), why.Reason})
	}
	return rows
}

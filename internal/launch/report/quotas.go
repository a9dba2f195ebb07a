package report

// quotaRow says why a step waited for as many gradients as it did.
type quotaRow struct{ Step, Quota, Reason string }

// quotaRows is the limit on rows in the table of reasons.
const quotaRows = 12

// quotas returns the reasons of steps at equal distances, including the first, for readers who
// cannot use the pointer, as on paper. If the reason never changes, it returns none.
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

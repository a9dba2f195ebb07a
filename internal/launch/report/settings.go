package report

import "strings"

// setting is one row of the table of settings.
type setting struct{ Name, Value string }

// settings parses the simple part of YAML: "name: value" lines, nested by indentation, and lists of
// scalars. For anything else it returns nil, and the text is shown unchanged: the page must not
// guess.
func settings(text string) []setting {
	var rows []setting
	type level struct {
		indent int
		name   string
	}
	var path []level
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \r\n")
		body := strings.TrimLeft(line, " ")
		if body == "" || body == "---" || strings.HasPrefix(body, "#") {
			continue
		}
		indent := len(line) - len(body)
		if item, found := strings.CutPrefix(body, "- "); found && len(rows) > 0 && rows[len(rows)-1].Name == joined(path, func(l level) string { return l.name }) {
			last := &rows[len(rows)-1]
			if last.Value != "" {
				last.Value += ", "
			}
			last.Value += unquote(item)
			continue
		}
		name, value, found := strings.Cut(body, ":")
		if !found || value != "" && value[0] != ' ' || strings.HasPrefix(body, "- ") || strings.ContainsAny(name, "{}[]\"'|>&*") {
			return nil
		}
		value = strings.TrimSpace(value)
		if value == "|" || value == ">" {
			return nil
		}
		for len(path) > 0 && path[len(path)-1].indent >= indent {
			path = path[:len(path)-1]
		}
		path = append(path, level{indent, name})
		rows = append(rows, setting{joined(path, func(l level) string { return l.name }), unquote(value)})
	}
	// Drop names without a value, which only open a level.
	kept := rows[:0]
	for i, r := range rows {
		if r.Value == "" && i+1 < len(rows) && strings.HasPrefix(rows[i+1].Name, r.Name+".") {
			continue
		}
		kept = append(kept, r)
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

func joined[T any](path []T, name func(T) string) string {
	parts := make([]string, len(path))
	for i, l := range path {
		parts[i] = name(l)
	}
	return strings.Join(parts, ".")
}

// unquote removes the quotes around a scalar.
func unquote(s string) string {
	if n := len(s); n >= 2 && (s[0] == '"' || s[0] == '\'') && s[n-1] == s[0] {
		return s[1 : n-1]
	}
	return s
}

package model

import (
	"fmt"
	"strconv"
	"strings"
)

// option is one setting after a model's name. Its value is a *int, a *float64 or a *uint64.
type option struct {
	key   string
	value any
}

// eachOption parses options such as "rank=8,decay=0.1".
func eachOption(text string, options ...option) error {
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		var names []string
		known := false
		for _, o := range options {
			names = append(names, o.key)
			if o.key != key {
				continue
			}
			known = true
			if err := o.set(value); err != nil {
				return fmt.Errorf("option %q: %w", part, err)
			}
		}
		if !known {
			return fmt.Errorf("no option is called %q; know %s", key, strings.Join(names, ", "))
		}
	}
	return nil
}

func (o option) set(text string) (err error) {
	switch v := o.value.(type) {
	case *int:
		*v, err = strconv.Atoi(text)
	case *float64:
		*v, err = strconv.ParseFloat(text, 64)
	case *uint64:
		*v, err = strconv.ParseUint(text, 10, 64)
	}
	return err
}

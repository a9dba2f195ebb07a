package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
)

// JSON returns results as indented JSON, as encoding/json does. Figures that are not known, which are
// NaN, and infinite ones are null: encoding/json refuses them, and hours of measuring would be lost
// for one of them.
func JSON(v any) ([]byte, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	if _, unknown := errors.AsType[*json.UnsupportedValueError](err); unknown {
		return withNulls(v)
	}
	return text, err
}

// withNulls is JSON for results with figures that encoding/json refuses.
func withNulls(v any) ([]byte, error) {
	var flat, indented bytes.Buffer
	if err := appendJSON(&flat, reflect.ValueOf(v)); err != nil {
		return nil, err
	}
	err := json.Indent(&indented, flat.Bytes(), "", "  ")
	return indented.Bytes(), err
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// appendJSON writes a value. Structs, slices and pointers are taken apart as far as floats may be in
// them; encoding/json does the rest.
func appendJSON(to *bytes.Buffer, v reflect.Value) error {
	kind := v.Kind()
	switch {
	case kind == reflect.Float64 && (math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0)),
		kind == reflect.Pointer && v.IsNil(), kind == reflect.Slice && v.IsNil(), kind == reflect.Invalid:
		to.WriteString("null")
		return nil
	case v.Type().Implements(marshaler):
	case kind == reflect.Pointer, kind == reflect.Interface:
		return appendJSON(to, v.Elem())
	case kind == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		to.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				to.WriteByte(',')
			}
			if err := appendJSON(to, v.Index(i)); err != nil {
				return err
			}
		}
		to.WriteByte(']')
		return nil
	case kind == reflect.Struct:
		to.WriteByte('{')
		if _, err := appendFields(to, v, 0); err != nil {
			return err
		}
		to.WriteByte('}')
		return nil
	}
	text, err := json.Marshal(v.Interface())
	to.Write(text)
	return err
}

// appendFields writes the fields of a struct, of which n precede, and returns how many there are
// then. Fields of embedded structs are written as its own.
func appendFields(to *bytes.Buffer, v reflect.Value, n int) (int, error) {
	for i := range v.NumField() {
		field, of := v.Type().Field(i), v.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		embedded := reflect.Indirect(of) // invalid for a pointer that is nil
		switch {
		case field.Anonymous && name == "" && of.Kind() == reflect.Pointer && of.IsNil():
			continue
		case field.Anonymous && name == "" && embedded.Kind() == reflect.Struct:
			var err error
			if n, err = appendFields(to, embedded, n); err != nil {
				return n, err
			}
			continue
		case !field.IsExported() || name == "-" || options == "omitempty" && (of.IsZero() || of.Kind() == reflect.Slice && of.Len() == 0):
			continue
		case name == "":
			name = field.Name
		}
		if n++; n > 1 {
			to.WriteByte(',')
		}
		key, err := json.Marshal(name)
		if err != nil {
			return n, err
		}
		to.Write(append(key, ':'))
		if err := appendJSON(to, of); err != nil {
			return n, err
		}
	}
	return n, nil
}

package words

import (
	"math"
	"strings"
	"testing"
)

func TestNumbersInWords(t *testing.T) {
	for _, c := range [][2]string{
		{Digits(1234.5, 3), "1234"}, {Digits(999.6, 3), "1000"}, {Digits(999.4, 3), "999"}, {Digits(120, 2), "120"}, {Digits(99.6, 2), "100"},
		{Digits(-153, 2), "-153"}, {Digits(3e6, 2), "3000000"}, {Digits(0, 3), "0"}, {Digits(0.5, 3), "0.5"}, {Digits(2.0/3, 3), "0.667"},
		{Digits(1.5e-9, 2), "1.5e-09"}, {Digits(math.NaN(), 2), "NaN"}, {Digits(math.Inf(1), 2), "+Inf"},

		{Bytes(0), "0 B"}, {Bytes(999), "999 B"}, {Bytes(999.7), "1 kB"}, {Bytes(1000), "1 kB"}, {Bytes(7403520), "7.4 MB"}, {Bytes(210e6), "210 MB"},
		{Bytes(999_499), "999 kB"}, {Bytes(999_999), "1 MB"}, {Bytes(999.6e6), "1 GB"}, {Bytes(12_345_678_901), "12.3 GB"}, {Bytes(3e15), "3000 TB"},
	} {
		if c[0] != c[1] {
			t.Errorf("got %q, want %q", c[0], c[1])
		}
	}
	for n := 1.0; n < 1e15; n *= 1.0007 {
		if s := Bytes(n); strings.Contains(s, "e") || len(s) > len("99.9 MB") {
			t.Errorf("%g bytes are %q", n, s)
		}
	}
}

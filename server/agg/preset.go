package agg

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// preset is a named point in the space of Config.
type preset struct {
	name  string
	param string   // the letter that stands for its number, "" if it takes none
	usual uint32   // the number if none is written; 0: one must be written
	kinds []string // words that may come first, each naming another rule of the same family
	least uint32   // the smallest number that makes sense
	make  func(n uint32) Config
}

var presets = []preset{
	{name: "bsp", make: func(uint32) Config { return Config{} }},
	{name: "backup", param: "B", make: func(b uint32) Config { return Config{Backup: int(b), Lead: kintsugi.Infinite} }},
	{name: "async", make: func(uint32) Config {
		return Config{Quota: 1, Late: Apply, Staleness: kintsugi.Infinite, Lead: kintsugi.Infinite, PerWorker: math.MaxInt32, Linear: true}
	}},
	{name: "ssp", param: "S", make: func(s uint32) Config {
		return Config{Quota: 1, Late: Apply, Staleness: kintsugi.Infinite, Lead: s, PerWorker: math.MaxInt32, Linear: true}
	}},
	{name: "rennala", param: "K", least: 1, make: func(k uint32) Config {
		// One worker alone must be able to make the step.
		return Config{Quota: int(k), Lead: kintsugi.Infinite, PerWorker: int(k), Credit: int(k)}
	}},
	{name: "dbw", kinds: []string{"paper", "joint"}, make: func(uint32) Config { return chosenBy("dbw") }},
	{name: "bdbw", make: func(uint32) Config { return chosenBy("bdbw") }},
	{name: "adasync", param: "K", least: 1, usual: 1, make: func(k uint32) Config { return chosenBy(fmt.Sprintf("adasync:%d", k)) }},
}

// chosenBy returns the configuration in which a controller chooses the quota.
func chosenBy(controller string) Config {
	return Config{Controller: controller, Lead: kintsugi.Infinite}
}

// maxParam bounds the number of a preset or an option. It is far above any use, and far below an
// overflow.
const maxParam = 1 << 20

// form returns how p is written.
func (p preset) form() string {
	if p.param == "" {
		return p.name
	}
	return p.name + ":" + p.param
}

// Presets lists the forms that Preset reads. A letter stands for a number.
func Presets() []string {
	var forms []string
	for _, p := range presets {
		if p.usual > 0 {
			forms = append(forms, p.name)
		}
		forms = append(forms, p.form())
		for _, k := range p.kinds {
			forms = append(forms, p.name+":"+k)
		}
	}
	return forms
}

// option is a word that changes one setting of a preset.
type option struct {
	name   string
	number bool // written name=N
	apply  func(c *Config, n uint32)
}

var options = []option{
	{"mean", false, func(c *Config, _ uint32) { c.Scale = Mean }},
	{"sum", false, func(c *Config, _ uint32) { c.Scale = Sum }},
	{"drop", false, func(c *Config, _ uint32) { c.Late, c.Staleness = Drop, 0 }},
	{"staleness", true, func(c *Config, n uint32) { c.Late, c.Staleness = Apply, n }},
	{"discount", false, func(c *Config, _ uint32) { c.Discount = true }},
	{"lead", true, func(c *Config, n uint32) { c.Lead = n }},
	{"limit", true, func(c *Config, n uint32) { c.PerWorker = int(n) }},
	{"credit", true, func(c *Config, n uint32) { c.Credit = int(n) }},
	{"knee", true, func(c *Config, n uint32) { c.Knee, c.Linear = int(n), false }},
	{"linear", false, func(c *Config, _ uint32) { c.Knee, c.Linear = 0, true }},
	{"constant", false, func(c *Config, _ uint32) { c.Knee, c.Linear = 0, false }},
	{"interrupt", false, func(c *Config, _ uint32) { c.Busy = kintsugi.Interrupt }},
	{"wait", false, func(c *Config, _ uint32) { c.Busy = kintsugi.Wait }},
	{"pull", false, func(c *Config, _ uint32) { c.Busy = kintsugi.Pull }},
}

// Options lists the forms of the options that Preset reads.
func Options() []string {
	var forms []string
	for _, o := range options {
		f := o.name
		if o.number {
			f += "=N"
		}
		forms = append(forms, f)
	}
	return forms
}

// Preset reads a preset and its options, such as "bsp", "backup:1", "async:discount" or
// "ssp:3,discount". First comes a name; after a colon, the preset's number if it has one; then
// options, separated by commas, each of which changes one setting. A number may be "inf" if its
// bound can be infinite. Anything else is a usage error that says how the text should be written.
func Preset(text string) (Config, error) {
	name, rest, colon := strings.Cut(text, ":")
	for _, p := range presets {
		if p.name != name {
			continue
		}
		var words []string
		if colon {
			words = strings.Split(rest, ",")
		}
		return p.read(text, words)
	}
	return Config{}, fmt.Errorf("%w: consistency %q is unknown; use one of %s, each with options if you like, such as async:discount",
		kintsugi.ErrUsage, text, strings.Join(Presets(), ", "))
}

// read returns the configuration of p with the words after its name.
func (p preset) read(text string, words []string) (Config, error) {
	n := p.usual
	first := ""
	if len(words) > 0 {
		first = words[0]
	}
	kind := slices.Contains(p.kinds, first)
	if _, numeral := number(first); p.param != "" && (numeral || p.usual == 0) {
		var ok bool
		n, ok = number(first)
		if !ok || n < p.least || n == kintsugi.Infinite {
			return Config{}, fmt.Errorf("%w: consistency %q: write %s with a whole number %s from %d to %d, such as %s:%d",
				kintsugi.ErrUsage, text, p.form(), p.param, p.least, maxParam, p.name, p.least+1)
		}
		words = words[1:]
	}
	c := p.make(n)
	if kind {
		c.Controller += ":" + first
		words = words[1:]
	}
	for _, w := range words {
		if !c.option(w) {
			return Config{}, fmt.Errorf("%w: consistency %q: %q is no option; use %s with any of %s",
				kintsugi.ErrUsage, text, w, p.form(), strings.Join(Options(), ", "))
		}
	}
	return c, nil
}

// option applies one option and reports whether there is such an option.
func (c *Config) option(word string) bool {
	name, value, valued := strings.Cut(word, "=")
	for _, o := range options {
		if o.name != name || o.number != valued {
			continue
		}
		n := uint32(0)
		if valued {
			var ok bool
			unbounded := o.name == "staleness" || o.name == "lead"
			if n, ok = number(value); !ok || (n == kintsugi.Infinite && !unbounded) || (n == 0 && !unbounded) {
				return false
			}
		}
		o.apply(c, n)
		return true
	}
	return false
}

// number reads a whole number up to maxParam, or "inf".
func number(s string) (uint32, bool) {
	if s == "inf" {
		return kintsugi.Infinite, true
	}
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && n <= maxParam
}

package kernel

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

//go:embed *.cu *.cuh
var sources embed.FS

//go:embed manifest.json
var manifest []byte

// Manifest records what the committed PTX was compiled from.
type Manifest struct {
	Compiler string   `json:"compiler"` // such as "NVRTC 12.8"
	Flags    []string `json:"flags"`
	Ptxas    string   `json:"ptxas"` // the architecture for which ptxas reports resources
	Families []Family `json:"families"`
}

// Family is one file of kernels.
type Family struct {
	Name    string   `json:"name"`   // of the .cu and the .ptx file
	Source  string   `json:"source"` // SHA-256 of the source and its headers
	PTX     string   `json:"ptx"`    // SHA-256 of the PTX
	Kernels []Kernel `json:"kernels"`
}

// Kernel is what one kernel needs of a multiprocessor.
type Kernel struct {
	Name      string `json:"name"`
	Registers int    `json:"registers"` // of a thread
	Shared    int    `json:"shared"`    // bytes of a block
	Spills    int    `json:"spills"`    // bytes of a thread
}

// ReadManifest returns the committed manifest.
func ReadManifest() (*Manifest, error) {
	m := new(Manifest)
	if err := json.Unmarshal(manifest, m); err != nil {
		return nil, fmt.Errorf("read manifest.json: %w", err)
	}
	return m, nil
}

// Families returns the names of the .cu files.
func Families() []string {
	files, _ := sources.ReadDir(".") // an embedded folder can be read
	var names []string
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ".cu"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Source returns the text of a family's .cu file, and the headers that it may include, by name.
func Source(family string) (text string, headers map[string]string, err error) {
	b, err := sources.ReadFile(family + ".cu")
	if err != nil {
		return "", nil, fmt.Errorf("no source of kernels %q: %w", family, err)
	}
	headers = map[string]string{}
	files, _ := sources.ReadDir(".")
	for _, f := range files {
		if path.Ext(f.Name()) == ".cuh" {
			h, err := sources.ReadFile(f.Name())
			if err != nil {
				return "", nil, err
			}
			headers[f.Name()] = string(h)
		}
	}
	return string(b), headers, nil
}

// Hash returns the SHA-256 of a family's source and of the headers.
func Hash(family string) (string, error) {
	text, headers, err := Source(family)
	if err != nil {
		return "", err
	}
	var names []string
	for n := range headers {
		names = append(names, n)
	}
	slices.Sort(names)
	h := sha256.New()
	fmt.Fprintf(h, "%d %s", len(text), text)
	for _, n := range names {
		fmt.Fprintf(h, "%s %d %s", n, len(headers[n]), headers[n])
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

var version = regexp.MustCompile(`(?m)^\.version .*$`)

// ForDrivers returns PTX that claims to be of CUDA 12.4. The compiler writes its own version, which
// older drivers refuse without looking at the code. The kernels use nothing newer; the assembler
// would refuse it.
func ForDrivers(ptx []byte) []byte { return version.ReplaceAllLiteral(ptx, []byte(".version 8.4")) }

// Flags are the compiler's flags: for compute capability 8.0 and newer, without contraction, with
// correctly rounded division and square root, and with subnormal numbers kept.
var Flags = []string{"--gpu-architecture=compute_80", "--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "-default-device"}

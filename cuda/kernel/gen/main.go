//go:build gpu && cgo && linux

// Command gen compiles the kernels to PTX and writes the manifest.
//
//	go run -tags gpu ./cuda/kernel/gen -nvrtc LIBRARY -ptxas PROGRAM [-out FOLDER]
//
// Both tools are parts of CUDA 12.8; no other part is needed.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/nvrtc"
	"github.com/kintsugi-ml/kintsugi/cuda/kernel"
)

const arch = "sm_90"

func main() {
	library := flag.String("nvrtc", "", "libnvrtc.so.12; default: where the system finds it")
	ptxas := flag.String("ptxas", "ptxas", "the assembler")
	out := flag.String("out", "cuda/kernel", "where to write")
	flag.Parse()
	if err := run(*library, *ptxas, *out); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(library, ptxas, out string) error {
	c, err := nvrtc.Open(library)
	if err != nil {
		return err
	}
	m := kernel.Manifest{Compiler: "NVRTC " + c.Version(), Flags: kernel.Flags, Ptxas: arch}
	for _, name := range kernel.Families() {
		text, headers, err := kernel.Source(name)
		if err != nil {
			return err
		}
		ptx, err := c.Compile(name+".cu", text, headers, kernel.Flags)
		if err != nil {
			return err
		}
		ptx = kernel.ForDrivers(ptx)
		file := filepath.Join(out, name+".ptx")
		if err := os.WriteFile(file, ptx, 0o644); err != nil {
			return err
		}
		f := kernel.Family{Name: name}
		sum := sha256.Sum256(ptx)
		f.PTX = hex.EncodeToString(sum[:])
		if f.Source, err = kernel.Hash(name); err != nil {
			return err
		}
		if f.Kernels, err = resources(ptxas, file); err != nil {
			return err
		}
		m.Families = append(m.Families, f)
	}
	b, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "manifest.json"), append(b, '\n'), 0o644)
}

var (
	entry    = regexp.MustCompile(`Compiling entry function '(\w+)'`)
	spills   = regexp.MustCompile(`(\d+) bytes spill stores, (\d+) bytes spill loads`)
	register = regexp.MustCompile(`Used (\d+) registers`)
	shared   = regexp.MustCompile(`(\d+) bytes smem`)
)

// resources asks the assembler what each kernel of a file needs.
func resources(ptxas, file string) ([]kernel.Kernel, error) {
	b, err := exec.Command(ptxas, "-v", "-arch="+arch, file, "-o", os.DevNull).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("assemble %s: %w: %s", file, err, b)
	}
	text := string(b)
	var kernels []kernel.Kernel
	marks := entry.FindAllStringSubmatchIndex(text, -1)
	for i, m := range marks {
		end := len(text)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		part := text[m[0]:end]
		kernels = append(kernels, kernel.Kernel{
			Name: text[m[2]:m[3]], Registers: number(register, part, 1), Shared: number(shared, part, 1),
			Spills: number(spills, part, 1) + number(spills, part, 2),
		})
	}
	if len(kernels) == 0 {
		return nil, fmt.Errorf("assemble %s: no kernel in what %s says: %s", file, ptxas, b)
	}
	return kernels, nil
}

func number(r *regexp.Regexp, text string, group int) int {
	m := r.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[group]) // digits
	return n
}

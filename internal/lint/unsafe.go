package lint

// The folders that may use unsafe. If an array is corrupted, only three places need to be searched.
var unsafeFolders = []string{"kernels", "cuda", "internal/shm"}

func checkUnsafe(r *report, f *file) {
	for _, folder := range unsafeFolders {
		if within(f.folder, folder) {
			return
		}
	}
	for _, i := range f.imports {
		switch i.path {
		case "C":
			r.at(i.pos, "unsafe", `import "C" outside kernels, cuda and internal/shm: put the C code behind a Go `+
				"function in kernels or cuda, with a version in plain Go for CGO_ENABLED=0")
		case "unsafe":
			r.at(i.pos, "unsafe", "import of unsafe outside kernels, cuda and internal/shm: use encoding/binary, or a "+
				"function in kernels or internal/shm that states what must hold")
		}
	}
	for _, group := range f.syntax.Comments {
		for _, c := range group.List {
			if len(c.Text) > 14 && c.Text[:14] == "//go:linkname " {
				r.at(c.Pos(), "unsafe", "go:linkname reaches into another package: use what that package exports")
			}
		}
	}
}

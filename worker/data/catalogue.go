package data

import (
	"fmt"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// Info describes a data set that [Open] knows.
type Info struct {
	Name        string
	Description string
	Bytes       int64  // to download; 0 if there is nothing to download
	Licence     string // of the data, as commonly stated
	Text        bool   // sequences of characters; else images
	Builtin     bool   // generated, so that it needs neither a folder nor a network
}

// List returns the data sets that [Open] knows, those that need no files first.
func List() []Info {
	var list []Info
	for _, s := range sources {
		info := s.info
		for _, f := range s.files {
			info.Bytes += f.bytes
		}
		list = append(list, info)
	}
	return list
}

// A source is a data set and where it comes from.
type source struct {
	info   Info
	folder string // in the data directory, where Fetch puts it
	url    string // the files are at url + name
	files  []file

	// images reads the set from a data directory; nil: four IDX files, or a text. archive is the name of the one file that
	// it reads first, if it does.
	images  func(s *source, dir string) (*ImageSet, error)
	archive string
}

// file is one file as its publisher made it.
type file struct {
	name   string
	bytes  int64
	sha256 string
}

// sources is read only. The sets to download in IDX format use the same names for their files, so that each needs a
// folder of its own.
var sources = []source{
	{
		info: Info{
			Name:        "digits",
			Description: "12,000 + 2,000 generated digits, 28x28, 10 classes",
			Licence:     "drawn with the Go fonts (BSD-3-Clause)",
			Builtin:     true,
		},
	},
	{
		info: Info{
			Name:        "text",
			Description: "1,000,000 characters of generated sentences, 28 different",
			Licence:     "none needed",
			Text:        true,
			Builtin:     true,
		},
	},
	{
		info: Info{
			Name:        "mnist",
			Description: "60,000 + 10,000 handwritten digits, 28x28, 10 classes",
			Licence:     "CC BY-SA 3.0",
		},
		folder: "mnist",
		url:    "https://ossci-datasets.s3.amazonaws.com/mnist/",
		files: []file{
			{"train-images-idx3-ubyte.gz", 9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
			{"train-labels-idx1-ubyte.gz", 28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
			{"t10k-images-idx3-ubyte.gz", 1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
			{"t10k-labels-idx1-ubyte.gz", 4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"},
		},
	},
	{
		info: Info{
			Name:        "fashion",
			Description: "60,000 + 10,000 photographs of clothes, 28x28, 10 classes",
			Licence:     "MIT",
		},
		folder: "fashion-mnist",
		url:    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
		files: []file{
			{"train-images-idx3-ubyte.gz", 26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"},
			{"train-labels-idx1-ubyte.gz", 29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"},
			{"t10k-images-idx3-ubyte.gz", 4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"},
			{"t10k-labels-idx1-ubyte.gz", 5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"},
		},
	},
	{
		info: Info{
			Name:        "cifar10",
			Description: "50,000 + 10,000 photographs of 10 kinds of things, 32x32 in colour (CIFAR-10, binary version)",
			Licence:     "none stated; cite Krizhevsky (2009)",
		},
		folder: "cifar10",
		url:    "https://www.cs.toronto.edu/~kriz/",
		files: []file{
			{"cifar-10-binary.tar.gz", 170052171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
		},
		images: openCIFAR, archive: "cifar-10-binary.tar.gz",
	},
	{
		info: Info{
			Name:        "cifar10-jpeg",
			Description: "CIFAR-10, JPEG re-encoded: an archive cifar10-jpeg.tar.gz of files train/CLASS/NUMBER.jpg and test/CLASS/NUMBER.jpg",
			Licence:     "none stated; cite Krizhevsky (2009)",
		},
		folder: "cifar10",
		images: openCIFAR, archive: "cifar10-jpeg.tar.gz",
	},
	{
		info: Info{
			Name:        "shakespeare",
			Description: "1,115,394 characters of Shakespeare's plays, 65 different (tiny-shakespeare)",
			Licence:     "public domain",
			Text:        true,
		},
		folder: "tinyshakespeare",
		url:    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/",
		files: []file{
			{"input.txt", 1115394, "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"},
		},
	},
	{
		info: Info{
			Name:        "idx",
			Description: "your own four IDX files in one folder: any shape, any number of classes up to 256",
			Licence:     "yours",
		},
	},
}

// find returns the source with a name, or a usage error that lists the names.
func find(name string) (*source, error) {
	var names []string
	for i := range sources {
		if sources[i].info.Name == name {
			return &sources[i], nil
		}
		names = append(names, sources[i].info.Name)
	}
	return nil, fmt.Errorf("%w: there is no data set %q; there are: %s",
		kintsugi.ErrUsage, name, strings.Join(names, ", "))
}

// findDownload returns a source that has files to download.
func findDownload(name string) (*source, error) {
	s, err := find(name)
	switch {
	case err != nil:
		return nil, err
	case s.info.Builtin:
		return nil, fmt.Errorf("%w: data set %q is generated: there is nothing to download",
			kintsugi.ErrUsage, name)
	case len(s.files) == 0:
		return nil, fmt.Errorf("%w: data set %q is a folder of your own files: there is nothing to download",
			kintsugi.ErrUsage, name)
	}
	return s, nil
}

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
	Bytes       int64  // size of the download; 0 if there is none
	Licence     string // of the data, as commonly stated
	Kind        Kind   // of its examples
	Builtin     bool   // generated, so that it needs neither a folder nor a network
}

// Kind is the kind of examples in a set.
type Kind uint8

// The kinds.
const (
	KindImages    Kind = iota
	KindText           // windows of characters
	KindVectors        // labelled, all of one length
	KindRatings        // known entries of a matrix
	KindDocuments      // bags of words
)

// List returns the data sets that [Open] knows. Sets that need no files come first.
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

// A source is a data set and its origin.
type source struct {
	info   Info
	folder string // in the data directory; Fetch writes to it
	url    string // the files are at url + name; "" if the files cannot be downloaded
	files  []file // all files to verify; the first ones are read
	halves bool   // ratings: the first two files are the training and the test half; otherwise one file has both

	// images reads the set from a data directory. nil: the set is four IDX files, or not images.
	// archive is the name of the file that images reads first, if any.
	images  func(s *source, dir string) (*ImageSet, error)
	archive string
}

// file is one file of a publisher.
type file struct {
	name   string
	bytes  int64
	sha256 string
}

// sources must not be changed. The downloadable sets in the IDX format have the same file names, so
// each needs its own folder.
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
			Kind:        KindText,
			Builtin:     true,
		},
	},
	{
		info: Info{
			Name:        "cover",
			Description: "12,000 + 3,000 generated vectors of 54 features, 7 classes",
			Licence:     "none needed",
			Kind:        KindVectors,
			Builtin:     true,
		},
	},
	{
		info: Info{
			Name:        "ratings",
			Description: "40,000 generated ratings of 500 items by 800 users, a fifth of them to test on",
			Licence:     "none needed",
			Kind:        KindRatings,
			Builtin:     true,
		},
	},
	{
		info: Info{
			Name:        "topics",
			Description: "1,000 + 200 generated documents of 80 words each, 800 different",
			Licence:     "none needed",
			Kind:        KindDocuments,
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
			Kind:        KindText,
		},
		folder: "tinyshakespeare",
		url:    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/",
		files: []file{
			{"input.txt", 1115394, "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"},
		},
	},
	{
		info: Info{
			Name:        "covtype",
			Description: "500 + 50 vectors of 54 features, 7 classes: a small sample of Forest CoverType",
			Licence:     "CC BY 4.0",
			Kind:        KindVectors,
		},
		folder: "covtype-small",
		url:    "https://raw.githubusercontent.com/sailing-pmls/bosen/master/app/mlr/datasets/",
		files: []file{
			{"covtype.scale.train.small", 63059, "e24bab00c06a32164367c5b2edadd58508ea220dcd3476eb2a99fbbe30fabd57"},
			{"covtype.scale.test.small", 6296, "9116a7a7e23aa23bda7a7686a2d3d1b66e9af655fdd24d7928e172d391d43df5"},
		},
	},
	{
		info: Info{
			Name:        "movielens",
			Description: "80,000 + 20,000 ratings of 1,682 films by 943 users (MovieLens 100K, split u1)",
			Licence:     "research, not to be passed on (GroupLens)",
			Kind:        KindRatings,
		},
		folder: "movielens-100k",
		url:    "https://files.grouplens.org/datasets/movielens/ml-100k/",
		files: []file{
			{"u1.base", 1586544, "ce253ec86c448b44fb3ba9a30d12dcfc2e9210cbde71efada3730c22e9ac212a"},
			{"u1.test", 392629, "18c6014a4b2c7324f250a63f8904a7b16b2b19f911129e346141507b0cbac950"},
			{"u.data", 1979173, "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490"},
		},
		halves: true,
	},
	{
		info: Info{
			Name:        "jester",
			Description: "363,209 ratings of 100 jokes by 5,000 users, a fifth of them to test on (a sample of Jester 1)",
			Licence:     "research, with the citation (Goldberg et al. 2001)",
			Kind:        KindRatings,
		},
		folder: "jester-5k",
		files:  []file{{"jester5k-ratings.csv.gz", 1379411, "ea256b0fd82c9dfbec6cf2071eb03c71adbe56b99fed7a75393ad0928047a2c8"}},
	},
	{
		info: Info{
			Name:        "20news",
			Description: "11,314 + 7,532 posts of 20 newsgroups as bags of 13,644 words (20 Newsgroups, by date)",
			Licence:     "none stated",
			Kind:        KindDocuments,
		},
		folder: "20news-bydate",
		files: []file{
			{"20news.train.ldac.gz", 2238367, "f64303fd052dccac3bace88075bcf9167f482ce05ab4d19bef6b9d61c43541a9"},
			{"20news.test.ldac.gz", 1331667, "8d062950e26d13144ada115e580ca1ae2a8647d0f0827e4250df39051b4f4a7b"},
			{"20news.vocab.gz", 38868, "a334edbb0f0153589a5e362c2f8b627277c970076f93ca544b9ba337a5d0ef93"},
		},
	},
	{
		info: Info{
			Name:        "reuters",
			Description: "9,603 + 3,299 stories as bags of 8,294 words (Reuters-21578, ModApte split)",
			Licence:     "research",
			Kind:        KindDocuments,
		},
		folder: "reuters-21578",
		files: []file{
			{"reuters.train.ldac.gz", 1030326, "185b1b865b0e06b071b9652391701a0cccdd445e5fd758bc847c31eaf0df157c"},
			{"reuters.test.ldac.gz", 320168, "4d19e760bad3e59c2fd9bb3ad6518aeb2e5b905d5e0c37c7cc1270f56c03450f"},
			{"reuters.vocab.gz", 24560, "d4abdd11327fe2b553540fceed09d4ae377ba93ed30e062decb727baa64d2c39"},
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

// find returns the source with the given name, or a usage error that lists all names.
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

// findDownload returns the source with the given name, or a usage error if it has no files to
// download.
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

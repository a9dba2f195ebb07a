package transport

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/kintsugi-ml/kintsugi"
	pb "github.com/kintsugi-ml/kintsugi/proto/kintsugi/v1"
)

// Record returns the frame that carries a message of a chain. Such messages travel in frames so
// that they cannot overtake the tensors that they are about.
func Record(m kintsugi.ChainMessage) (*Frame, error) {
	b, err := proto.Marshal(chainTo(m))
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", m, err)
	}
	return &Frame{Header: Header{Kind: KindRecord, Bytes: uint32(len(b)), CRC: Checksum(b)}, Payload: b}, nil
}

// Message decodes the message of a received frame of KindRecord.
func (f *Frame) Message() (kintsugi.ChainMessage, error) {
	if f.Kind != KindRecord {
		return nil, fmt.Errorf("%w: frame of kind %d where a record is due", kintsugi.ErrCorrupt, f.Kind)
	}
	b := make([]byte, f.Bytes)
	if err := f.CopyTo(b); err != nil {
		return nil, err
	}
	m := new(pb.ChainMessage)
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("%w: record of %d bytes: %w", kintsugi.ErrCorrupt, len(b), err)
	}
	return chainFrom(m)
}

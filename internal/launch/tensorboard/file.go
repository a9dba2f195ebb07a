package tensorboard

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// A file is a sequence of records. Each is a message Event of TensorFlow's event.proto behind its
// length, with a masked CRC32C of either. The numbers of fields below are from event.proto and
// summary.proto. A file begins with its version.

const version = "brain.Event:2"

// The fields of Event, Summary, Summary.Value and SessionLog that are used.
const (
	eventWallTime    protowire.Number = 1
	eventStep        protowire.Number = 2
	eventFileVersion protowire.Number = 3
	eventSummary     protowire.Number = 5
	eventSessionLog  protowire.Number = 7

	summaryValue     protowire.Number = 1
	valueTag         protowire.Number = 1
	valueSimple      protowire.Number = 2
	sessionLogStatus protowire.Number = 1

	sessionStart = 1 // SessionLog.START: what was said of this step and of later ones is void
)

// scalar is a figure of a step.
type scalar struct {
	tag   string
	value float64
}

// appendVersion appends the record with which a file begins.
func appendVersion(b []byte, wall float64) []byte {
	e := appendWallTime(nil, wall)
	e = protowire.AppendTag(e, eventFileVersion, protowire.BytesType)
	return appendRecord(b, protowire.AppendString(e, version))
}

// appendScalars appends the figures of a step, as known at wall, in seconds since 1970.
func appendScalars(b []byte, wall float64, step uint64, scalars []scalar) []byte {
	var summary []byte
	for _, s := range scalars {
		v := protowire.AppendTag(nil, valueTag, protowire.BytesType)
		v = protowire.AppendString(v, s.tag)
		v = protowire.AppendTag(v, valueSimple, protowire.Fixed32Type)
		v = protowire.AppendFixed32(v, math.Float32bits(float32(s.value)))
		summary = protowire.AppendTag(summary, summaryValue, protowire.BytesType)
		summary = protowire.AppendBytes(summary, v)
	}
	e := protowire.AppendTag(appendStep(wall, step), eventSummary, protowire.BytesType)
	return appendRecord(b, protowire.AppendBytes(e, summary))
}

// appendStart appends that steps begin again with this one.
func appendStart(b []byte, wall float64, step uint64) []byte {
	log := protowire.AppendTag(nil, sessionLogStatus, protowire.VarintType)
	log = protowire.AppendVarint(log, sessionStart)
	e := protowire.AppendTag(appendStep(wall, step), eventSessionLog, protowire.BytesType)
	return appendRecord(b, protowire.AppendBytes(e, log))
}

func appendWallTime(e []byte, wall float64) []byte {
	e = protowire.AppendTag(e, eventWallTime, protowire.Fixed64Type)
	return protowire.AppendFixed64(e, math.Float64bits(wall))
}

func appendStep(wall float64, step uint64) []byte {
	e := protowire.AppendTag(appendWallTime(nil, wall), eventStep, protowire.VarintType)
	return protowire.AppendVarint(e, step)
}

func appendRecord(b, event []byte) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(event)))
	b = binary.LittleEndian.AppendUint32(b, masked(b[at:]))
	b = append(b, event...)
	return binary.LittleEndian.AppendUint32(b, masked(event))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked is the checksum in the form in which these files have it: rotated, and with a constant
// added.
func masked(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

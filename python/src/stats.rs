//! The figures of a spool as the dataclasses of `package/unspool/stats.py`.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use unspool::{
    Achieved, ApplicationStats, AutoStats, CodecStats, DirectionStats, Figure, Lead, LinkStats,
    RegionCoding, Spool, Stall, Stats, TierKind, TierStats,
};

use crate::codecs::made_by;
use crate::energy::Energy;
use crate::waiting::detached;

/// The figures of a record, by name.
fn fields<'py>(
    py: Python<'py>,
    figures: impl Iterator<Item = (&'static str, Figure)>,
) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    for (name, figure) in figures {
        match figure {
            Figure::Count(count) => fields.set_item(name, count)?,
            Figure::Seconds(time) => fields.set_item(name, seconds(time))?,
        }
    }
    Ok(fields)
}

/// Makes the dataclasses.
struct Maker<'py> {
    module: Bound<'py, PyModule>,
}

/// What a spool has done, as an `unspool.stats.Stats`.
///
/// # Errors
/// Those of [`Spool::stats`], and whatever Python raises when it makes the objects.
pub fn of<'py>(py: Python<'py>, spool: &Spool, energy: &Energy) -> PyResult<Bound<'py, PyAny>> {
    let stats = &detached(py, None, || spool.stats())?;
    let maker = Maker { module: py.import("unspool.stats")? };
    let tiers = stats.tiers.iter().map(|tier| maker.tier(tier)).collect::<PyResult<Vec<_>>>()?;
    let links = stats.links.iter().map(|link| maker.link(link)).collect::<PyResult<Vec<_>>>()?;
    let app = &stats.application;
    let fields = fields(py, app.figures())?;
    let longest = app.longest_stall.as_ref().map(|stall| maker.stall(stall)).transpose()?;
    fields.set_item("longest_stall", longest)?;
    fields.set_item("prefetch_lead", lead(&maker, app)?)?;
    fields.set_item("notes", PyTuple::new(py, &app.notes)?)?;
    fields.set_item("tiers", PyTuple::new(py, tiers)?)?;
    fields.set_item("links", PyTuple::new(py, links)?)?;
    fields.set_item("codec", maker.codecs(stats)?)?;
    fields.set_item("auto", stats.auto.as_ref().map(|auto| maker.auto(auto)).transpose()?)?;
    if let Some(energy) = energy.taken(py)? {
        fields.set_item("energy", energy)?;
    }
    maker.make("Stats", &fields)
}

/// What the codecs did with the regions of a checkpoint, by name, as `unspool.codecs.Achieved`.
///
/// # Errors
/// Whatever Python raises when it makes the objects.
pub fn achieved<'py>(py: Python<'py>, regions: &[RegionCoding]) -> PyResult<Bound<'py, PyDict>> {
    let maker = Maker { module: py.import("unspool.codecs.values")? };
    let all = PyDict::new(py);
    for region in regions {
        let told = region.achieved.as_ref();
        let fields = PyDict::new(py);
        fields.set_item("codec", made_by(region.codec))?;
        fields.set_item("raw_bytes", region.bytes)?;
        fields.set_item("stored_bytes", region.stored)?;
        fields.set_item("values", told.map(|told| told.values))?;
        fields.set_item("max_error", told.map(|told| told.max_error))?;
        fields.set_item("rms_error", told.map(Achieved::rms_error))?;
        fields.set_item("outliers", told.map(|told| told.outliers))?;
        all.set_item(&region.name, maker.make("Achieved", &fields)?)?;
    }
    Ok(all)
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

fn lead<'py>(maker: &Maker<'py>, app: &ApplicationStats) -> PyResult<Option<Bound<'py, PyAny>>> {
    if app.prefetch_lead.samples == 0 {
        return Ok(None);
    }
    let Lead { min, median, max, mean, .. } = app.prefetch_lead;
    maker.module.getattr("Lead")?.call1((min, median, max, mean)).map(Some)
}

impl<'py> Maker<'py> {
    fn make(&self, class: &str, fields: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        self.module.getattr(class)?.call((), Some(fields))
    }

    fn py(&self) -> Python<'py> {
        self.module.py()
    }

    fn stall(&self, stall: &Stall) -> PyResult<Bound<'py, PyAny>> {
        let fields = (stall.call, stall.version, seconds(stall.time), &stall.awaited);
        self.module.getattr("Stall")?.call1(fields)
    }

    fn tier(&self, tier: &TierStats) -> PyResult<Bound<'py, PyAny>> {
        let fields = fields(self.py(), tier.figures())?;
        fields.set_item("location", &tier.location)?;
        fields.set_item("name", tier.kind.name())?;
        fields.set_item("capacity", Some(tier.capacity).filter(|&bytes| bytes != u64::MAX))?;
        fields.set_item("ready", Some(tier.ready).filter(|_| tier.kind != TierKind::Disk))?;
        fields.set_item("notes", PyTuple::new(self.py(), &tier.notes)?)?;
        self.make("TierStats", &fields)
    }

    fn link(&self, link: &LinkStats) -> PyResult<Bound<'py, PyAny>> {
        let fields = PyDict::new(self.py());
        fields.set_item("flushes_skipped", link.flushes_skipped)?;
        fields.set_item("last_failure", &link.last_failure)?;
        fields.set_item("fast", link.fast.name())?;
        fields.set_item("slow", link.slow.name())?;
        fields.set_item("flush", self.direction(&link.flush)?)?;
        fields.set_item("prefetch", self.direction(&link.prefetch)?)?;
        self.make("LinkStats", &fields)
    }

    fn direction(&self, direction: &DirectionStats) -> PyResult<Bound<'py, PyAny>> {
        let fields = fields(self.py(), direction.figures())?;
        fields.set_item("bytes_per_second", direction.rate)?;
        self.make("DirectionStats", &fields)
    }

    /// What was chosen where that was left to the run.
    fn auto(&self, auto: &AutoStats) -> PyResult<Bound<'py, PyAny>> {
        let fields = fields(self.py(), auto.figures())?;
        fields.set_item("latest", auto.latest)?;
        fields.set_item("ratio", (auto.ratio > 0.0).then_some(auto.ratio))?;
        fields.set_item("encode_seconds", auto.encode.map(seconds))?;
        fields.set_item("decode_seconds", auto.decode.map(seconds))?;
        self.make("AutoStats", &fields)
    }

    /// All codecs together, and each of them.
    fn codecs(&self, stats: &Stats) -> PyResult<Bound<'py, PyAny>> {
        let (codecs, launches) = (&stats.codecs, stats.launches);
        let each = codecs.iter().map(|stats| {
            let fields = self.codec(stats)?;
            fields.set_item("name", made_by(stats.codec))?;
            self.make("CodecUse", &fields)
        });
        let each = each.collect::<PyResult<Vec<_>>>()?;
        let together = codecs.iter().fold(CodecStats::default(), |all, one| CodecStats {
            codec: all.codec,
            encodes: all.encodes + one.encodes,
            raw_bytes: all.raw_bytes + one.raw_bytes,
            stored_bytes: all.stored_bytes + one.stored_bytes,
            achieved: all.achieved.and(one.achieved),
            encode_time: all.encode_time + one.encode_time,
            decodes: all.decodes + one.decodes,
            decode_time: all.decode_time + one.decode_time,
        });
        let fields = self.codec(&together)?;
        fields.set_item("codecs", PyTuple::new(self.py(), each)?)?;
        fields.set_item("launches", launches.launches)?;
        fields.set_item("launched", launches.checkpoints)?;
        fields.set_item("most_together", launches.most)?;
        self.make("CodecStats", &fields)
    }

    fn codec(&self, stats: &CodecStats) -> PyResult<Bound<'py, PyDict>> {
        let fields = fields(self.py(), stats.figures())?;
        fields.set_item("values", stats.achieved.values)?;
        fields.set_item("outliers", stats.achieved.outliers)?;
        fields.set_item("ratio", stats.ratio())?;
        fields.set_item("max_error", stats.achieved.max_error)?;
        fields.set_item("rms_error", stats.achieved.rms_error())?;
        Ok(fields)
    }
}

//! Saves and restores in all the ways that there are.

use unspool::gpu::{DeviceArray, DeviceSpan, Stream};
use unspool::{Checkpoint, RegionSpec, RestoreTicket, SaveTicket, Wait};
use unspool_cuda::copy;

use super::arrays::Content;
use super::check::same;
use super::{LIMIT, Outcome, Player};

/// What arrays hold that wait for data, and what they are overwritten with afterwards.
const BEFORE: u8 = 0xA5;
const AFTER: u8 = 0xEE;

impl Player<'_> {
    pub(super) fn wait(&self) -> Wait<'static> {
        Wait::at_most(LIMIT)
    }

    /// A wait that is not a stall while the stream has work.
    fn wait_on(&self, lane: usize) -> Wait<'_> {
        Wait { stream: Some(&self.lanes[lane].stream), ..self.wait() }
    }

    /// Saves a new version, or some.
    pub(super) fn save(&mut self) -> Outcome {
        match self.dice.below(4) {
            0 => self.save_many(),
            1.. if self.batches => self.save_batched(),
            _ => self.save_alone(),
        }
    }

    fn save_alone(&mut self) -> Outcome {
        if self.batches && self.dice.one_in(2) {
            self.spool.hand_over(&self.wait())?;
        }
        let (version, contents) = (self.next, self.contents());
        self.next += 1;
        let ticket = self.begin_save(version, &contents)?;
        self.fill(ticket, &contents)?;
        self.saved.insert(version, contents);
        self.done.saves += 1;
        Ok(())
    }

    /// Saves up to three versions by one call.
    fn save_many(&mut self) -> Outcome {
        let count = 1 + self.dice.below(3);
        let all = (0..count).map(|_| self.contents_of(self.largest / count / 2));
        let (all, first) = (all.collect::<Vec<_>>(), self.next);
        self.next += count.cast_signed();
        let (mut used, mut arrays) = (0, Vec::new());
        for contents in &all {
            arrays.push(self.lay_out(contents, &mut used)?);
        }
        let mut batch = Vec::new();
        for (version, (contents, arrays)) in (first..).zip(all.iter().zip(&arrays)) {
            batch.push(self.checkpoint(version, contents, arrays)?);
        }
        self.spool.spool().save_many(&mut batch, &self.wait())?;
        assert!(batch.is_empty(), "what is saved is taken out");
        drop(batch);
        self.saved.extend((first..).zip(all));
        self.done.saves += count;
        self.spoil()
    }

    /// Saves a new version, which may wait for others.
    fn save_batched(&mut self) -> Outcome {
        let (version, contents) = (self.next, self.contents_of(self.largest / 2));
        self.next += 1;
        let arrays = self.lay_out(&contents, &mut 0)?;
        let checkpoint = self.checkpoint(version, &contents, &arrays)?;
        self.spool.save(checkpoint, &self.wait())?;
        self.saved.insert(version, contents);
        self.done.saves += 1;
        if self.dice.one_in(4) {
            self.spool.hand_over(&self.wait())?;
        }
        self.spoil()
    }

    /// Puts the contents of a checkpoint into arrays of lanes, one after the other.
    fn lay_out(
        &mut self,
        contents: &[Content],
        used: &mut u64,
    ) -> Outcome<Vec<(DeviceArray, usize)>> {
        let mut arrays = Vec::new();
        for content in contents {
            let lane = self.lane();
            let array = self.lanes[lane].array.span().slice(*used, content.extent())?;
            let from = content.on_device(self.bank)?;
            copy::device_to_device(&self.lanes[lane].stream, &array, &from)?;
            *used += content.extent().next_multiple_of(8);
            arrays.push((content.array(&array), lane));
        }
        Ok(arrays)
    }

    fn checkpoint<'c>(
        &'c self,
        version: i64,
        contents: &[Content],
        arrays: &'c [(DeviceArray, usize)],
    ) -> Outcome<Checkpoint<'c>> {
        let specs = contents.iter().enumerate().map(|(index, content)| content.spec(index));
        let mut checkpoint = self.spool.spool().checkpoint(version, specs.collect())?;
        for (index, (array, lane)) in arrays.iter().enumerate() {
            checkpoint.put(index, array, &self.lanes[*lane].stream)?;
        }
        Ok(checkpoint)
    }

    /// Overwrites the arrays of all lanes.
    fn spoil(&self) -> Outcome {
        for lane in &self.lanes {
            copy::fill(&lane.stream, &lane.array.span(), AFTER)?;
        }
        Ok(())
    }

    fn contents(&mut self) -> Vec<Content> {
        self.contents_of(self.largest)
    }

    /// Up to three regions, which have at most `largest` bytes together.
    fn contents_of(&mut self, largest: u64) -> Vec<Content> {
        let count = if self.dice.one_in(3) { 1 + self.dice.below(3) } else { 1 };
        let largest = largest / count;
        (0..count).map(|_| Content::draw(&mut self.dice, self.bank, largest)).collect()
    }

    fn begin_save(&mut self, version: i64, contents: &[Content]) -> Outcome<SaveTicket> {
        let specs: Vec<RegionSpec> =
            contents.iter().enumerate().map(|(index, content)| content.spec(index)).collect();
        let wait = if version % 2 == 0 { self.wait_on(0) } else { self.wait() };
        Ok(self.spool.spool().save(version, specs, &wait)?)
    }

    fn fill(&mut self, mut ticket: SaveTicket, contents: &[Content]) -> Outcome {
        let lane = self.lane();
        if self.dice.one_in(4) && ticket.device_region(0)?.is_some() {
            return self.fill_in_place(ticket, contents, lane);
        }
        for (index, content) in contents.iter().enumerate() {
            // The regions of one checkpoint may come from several streams.
            let lane = if self.dice.one_in(3) { self.lane() } else { lane };
            self.put(&mut ticket, index, content, lane)?;
        }
        Ok(ticket.commit()?)
    }

    /// One region, from the host or from an array of a stream.
    fn put(
        &mut self,
        ticket: &mut SaveTicket,
        index: usize,
        content: &Content,
        lane: usize,
    ) -> Outcome {
        if self.dice.one_in(4) {
            let bytes = content.dense(self.bank);
            return Ok(ticket.fill(index, |to| to.copy_from_slice(&bytes))?);
        }
        let lane = &self.lanes[lane];
        let array = lane.array.span().slice(0, content.extent())?;
        copy::device_to_device(&lane.stream, &array, &content.on_device(self.bank)?)?;
        ticket.put(index, &content.array(&array), &lane.stream)?;
        Ok(copy::fill(&lane.stream, &array, AFTER)?)
    }

    /// All regions, written into the arena's memory by the application.
    fn fill_in_place(
        &mut self,
        mut ticket: SaveTicket,
        contents: &[Content],
        lane: usize,
    ) -> Outcome {
        let stream = &self.lanes[lane].stream;
        ticket.begin(stream)?;
        match self.write_regions(&ticket, contents, stream) {
            Ok(()) => Ok(ticket.commit_on(stream)?),
            Err(error) => ticket.give_up_on(stream).map_err(Into::into).and(Err(error)),
        }
    }

    fn write_regions(&self, ticket: &SaveTicket, contents: &[Content], stream: &Stream) -> Outcome {
        for (index, content) in contents.iter().enumerate() {
            let to = ticket.device_region(index)?.ok_or("a region in another place")?;
            let from = content.on_device(self.bank)?;
            for row in 0..content.rows() {
                let (to, from) = content.row(row, &to, &from)?;
                copy::device_to_device(stream, &to, &from)?;
            }
        }
        Ok(())
    }

    /// Restores a version, in one of the ways that there are.
    pub(super) fn restore(&mut self, version: i64) -> Outcome {
        let contents = self.saved[&version].clone();
        let all: u64 = contents.iter().map(|content| content.extent() + 256).sum();
        if !self.checks.has_room(all) {
            self.done.compared_bytes += self.checks.settle(&self.lanes)?;
        }
        let lane = self.lane();
        let mut ticket = self.spool_for(version)?.restore(version, &self.wait_on(lane))?;
        self.done.restores += 1;
        if self.dice.one_in(4) && ticket.device_region(0)?.is_some() {
            return self.look_in_place(ticket, version, &contents, lane);
        }
        for (index, content) in contents.iter().enumerate() {
            let lane = if self.dice.one_in(3) { self.lane() } else { lane };
            let what = format!("version {version}, region {index}, {content:?}");
            self.get(&mut ticket, index, (content, what), lane)?;
        }
        Ok(ticket.finish()?)
    }

    /// One region, to the host, to an array that is copied on at once, or to one that stays.
    fn get(
        &mut self,
        ticket: &mut RestoreTicket,
        index: usize,
        (content, what): (&Content, String),
        lane: usize,
    ) -> Outcome {
        if self.dice.one_in(4) {
            let (mut seen, expected) = (Ok(()), content.dense(self.bank));
            ticket.read(index, |bytes| seen = same(bytes, &expected, &format!("{what}, read")))?;
            self.done.compared_bytes += expected.len() as u64;
            return seen;
        }
        let lane = &self.lanes[lane];
        let expected = content.scattered(self.bank, BEFORE);
        let result =
            self.checks.add(expected, format!("{what}, on {:#x}", lane.stream.handle()))?;
        let stays = self.dice.one_in(2);
        let array = lane.array.span().slice(0, content.extent())?;
        let to = if stays { &result } else { &array };
        copy::fill(&lane.stream, to, BEFORE)?;
        ticket.get(index, &content.array(to), &lane.stream)?;
        if stays {
            return Ok(());
        }
        copy::device_to_device(&lane.stream, &result, &array)?;
        Ok(copy::fill(&lane.stream, &array, AFTER)?)
    }

    /// All regions, read by the application where they are.
    fn look_in_place(
        &mut self,
        mut ticket: RestoreTicket,
        version: i64,
        contents: &[Content],
        lane: usize,
    ) -> Outcome {
        ticket.begin(&self.lanes[lane].stream)?;
        let looked = self.read_regions(&ticket, version, contents, lane);
        let stream = &self.lanes[lane].stream;
        match looked {
            Ok(()) => Ok(ticket.finish_on(stream)?),
            Err(error) => ticket.give_up_on(stream).map_err(Into::into).and(Err(error)),
        }
    }

    fn read_regions(
        &mut self,
        ticket: &RestoreTicket,
        version: i64,
        contents: &[Content],
        lane: usize,
    ) -> Outcome {
        for (index, content) in contents.iter().enumerate() {
            let from = ticket.device_region(index)?.ok_or("a region in another place")?;
            let what = format!("version {version}, region {index}, {content:?}, in place");
            let to: DeviceSpan = self.checks.add(content.dense(self.bank), what)?;
            copy::device_to_device(&self.lanes[lane].stream, &to, &from)?;
        }
        Ok(())
    }

    /// A save or a restore that is begun and given up with its work under way.
    pub(super) fn give_up(&mut self) -> Outcome {
        self.done.given_up += 1;
        let lane = self.lane();
        if let Some(version) = self.any()
            && self.dice.one_in(2)
        {
            let contents = self.saved[&version].clone();
            let mut ticket = self.spool_for(version)?.restore(version, &self.wait())?;
            let lane = &self.lanes[lane];
            let array = lane.array.span().slice(0, contents[0].extent())?;
            return Ok(ticket.get(0, &contents[0].array(&array), &lane.stream).map(drop)?);
        }
        let (version, contents) = (self.next, self.contents());
        let mut ticket = self.begin_save(version, &contents)?;
        self.put(&mut ticket, 0, &contents[0], lane)
    }
}
